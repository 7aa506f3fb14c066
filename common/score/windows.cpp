#include "common/score/windows.h"

#include <algorithm>

namespace common {
namespace {

/// Logits that one step may give. A vocabulary of 262144 then has 128 rows a step.
constexpr std::int64_t kMaxLogitBytes = std::int64_t{128} << 20;

/// Sequences that exist as long as this does.
class Sequences {
 public:
  Sequences(llama::Context& context, std::size_t n) : context_(context) {
    for (std::size_t i = 0; i < n; ++i) ids_.push_back(context.create_sequence());
  }
  ~Sequences() {
    for (const llama::SeqId id : ids_) context_.remove_sequence(id);
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;
  [[nodiscard]] llama::SeqId operator[](std::size_t i) const { return ids_[i]; }

 private:
  llama::Context& context_;
  std::vector<llama::SeqId> ids_;
};

struct Piece {
  std::size_t window;
  int position, n;
  bool outputs;
};

}  // namespace

void run_windows(llama::Context& context, std::span<const Window> windows,
                 const std::function<void(const WindowRows&)>& use) {
  const auto n_vocab = static_cast<std::int64_t>(context.model().info().n_vocab);
  const auto max_rows = static_cast<int>(
      std::clamp<std::int64_t>(kMaxLogitBytes / (n_vocab * static_cast<std::int64_t>(sizeof(float))), 1, 1 << 20));
  const Sequences sequences(context, windows.size());
  std::vector<int> done(windows.size(), 0);
  while (true) {
    std::vector<Piece> pieces;
    int unfinished = 0;
    for (std::size_t i = 0; i < windows.size(); ++i)
      unfinished += done[i] < static_cast<int>(windows[i].tokens.size()) ? 1 : 0;
    if (unfinished == 0) return;
    const int share = std::max(context.params().n_batch / unfinished, 1);
    const int output_share = std::max(std::min(context.params().n_batch, max_rows) / unfinished, 1);
    int room = context.params().n_batch;
    for (std::size_t i = 0; i < windows.size() && room > 0; ++i) {
      const int size = static_cast<int>(windows[i].tokens.size());
      if (done[i] == size) continue;
      const bool outputs = done[i] >= windows[i].first;
      const int end =
          outputs ? std::min(done[i] + output_share, size) : std::min({done[i] + share, windows[i].first, size});
      const int n = std::min(end - done[i], room);
      pieces.push_back({i, done[i], n, outputs});
      room -= n;
    }
    std::vector<llama::StepSequence> step;
    step.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      const std::span<const llama::Token> tokens = windows[piece.window].tokens;
      step.push_back({sequences[piece.window],
                      tokens.subspan(static_cast<std::size_t>(piece.position), static_cast<std::size_t>(piece.n)),
                      piece.outputs ? llama::Outputs::all : llama::Outputs::none, nullptr});
    }
    const llama::StepResult& result = context.run({step});
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      done[piece.window] += piece.n;
      if (piece.outputs) use({piece.window, piece.position, piece.n, result.sequences[i].logits});
    }
  }
}

}  // namespace common
