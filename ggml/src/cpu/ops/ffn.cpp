#include <algorithm>

#include "cpu/ops/feed_forward.h"
#include "cpu/ops/registry.h"

namespace ggml::cpu {

HiddenRows::HiddenRows(const BindContext& context, const Projection& down, std::int64_t capacity,
                       std::int64_t max_item_rows, Carver& carver)
    : kernels_(&context.kernels()),
      form_(down.act),
      k_(down.k),
      rounded_(context, std::span(&down, 1), down.k, capacity, carver) {
  values_ = carver.array<float>(std::min(capacity, kManyRows - 1) * k_);
  if (capacity >= kManyRows) tile_ = PerWorker<float>(carver, context.n_workers(), max_item_rows * kActPiece);
}

void HiddenRows::run_piece(Team& team, const GateUp& gate_up, const GateUp::Input& in, const PieceItem& item,
                           const ActView& view) const noexcept {
  const std::int64_t n0 = item.piece * kActPiece;
  const std::int64_t n1 = std::min(n0 + kActPiece, k_);
  float* tile = tile_.of(team);
  gate_up.run(team, in, {.y = tile, .stride = kActPiece, .m_rows = item.m_rows, .n0 = n0, .n1 = n1});
  ActView piece = view;
  piece.data += item.piece * view.piece_stride;
  const QuantiseActFn quantise = kernels_->act_of(form_);
  for (std::int64_t m = 0; m < item.m_rows; ++m) quantise(tile + m * kActPiece, n1 - n0, piece, item.row0 + m);
}

namespace {

constexpr std::int64_t kMinItemRows = 64;  // fewer rows per item would unpack the weights too often

/// down(act(gate x) * up x).
class Ffn final : public BoundOp {
 public:
  Ffn(const BindContext& c, const Node& node, Carver& carver)
      : kernels_(c.kernels()), x_(c.data<const float>(node.src[0])), dst_(c.data<float>(node.dst[0])) {
    const auto& p = std::get<FfnParams>(node.params);
    gate_up_ =
        GateUp(c, {{p.act, p.limit}, p.gated, p.fused_gate_up}, std::span(node.slots).first(node.slots.size() - 1));
    down_ = bind_projection(c, node.slots.back());
    rows_ = c.live_rows(node.src[0], gate_up_.k());
    input_ = RoundedInput(c, gate_up_.projections(), gate_up_.k(), rows_.capacity, carver);
    hidden_ = HiddenRows(c, down_, rows_.capacity, rows_.capacity, carver);
    gate_up_.take_scratch(c, rows_.capacity, std::max<std::int64_t>(kActPiece, few_row_columns()), carver);
    scratch_ =
        PerWorker<std::byte>(carver, c.n_workers(), static_cast<std::int64_t>(matmul_scratch_bytes(rows_.capacity)));
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t rows = rows_.of(counts);
    if (rows == 0) return;
    const RoundedInput::View x = input_.round(team, x_, gate_up_.k(), rows);
    if (!input_.is_private(rows)) team.barrier();
    if (rows < HiddenRows::kManyRows) {
      run_few(team, x, rows);
    } else {
      run_many(team, x, rows);
    }
  }

 private:
  static constexpr std::int64_t few_row_columns() { return 8 * kRowUnit; }

  void run_few(Team& team, const RoundedInput::View& x, std::int64_t rows) const noexcept {
    const std::int64_t width = gate_up_.width();
    const std::int64_t chunk = std::min(chunk_for(width, team.size(), kRowUnit), few_row_columns());
    team.for_chunks(width, chunk, [&](std::int64_t n0, std::int64_t n1) {
      gate_up_.run(team, {input_, x},
                   {.y = hidden_.values() + n0, .stride = width, .m_rows = rows, .n0 = n0, .n1 = n1});
    });
    team.barrier();
    const RoundedInput::View view = hidden_.rounded().round(team, hidden_.values(), width, rows);
    if (!hidden_.rounded().is_private(rows)) team.barrier();
    run_down(team, hidden_.rounded().of(view, down_.act), rows);
  }

  void run_many(Team& team, const RoundedInput::View& x, std::int64_t rows) const noexcept {
    const std::int64_t pieces = hidden_.pieces();
    const std::int64_t wanted = (8 * team.size() + pieces - 1) / pieces;
    const std::int64_t tiles = std::clamp<std::int64_t>(rows / kMinItemRows, 1, wanted);
    const std::int64_t tile_rows = (rows + tiles - 1) / tiles;
    const ActView view = hidden_.rounded().shared(down_.act, rows);
    team.for_chunks(pieces * tiles, 1, [&](std::int64_t item, std::int64_t) {
      const std::int64_t row0 = item % tiles * tile_rows;
      const std::int64_t m_rows = std::min(tile_rows, rows - row0);
      if (m_rows <= 0) return;
      RoundedInput::View tile = x;
      for (ActView& form : tile.forms) form.data += row0 * form.row_stride;
      hidden_.run_piece(team, gate_up_, {input_, tile}, {item / tiles, row0, m_rows}, view);
    });
    team.barrier();
    run_down(team, view, rows);
  }

  void run_down(Team& team, const ActView& view, std::int64_t rows) const noexcept {
    team.for_chunks(down_.n, chunk_for(down_.n, team.size(), kRowUnit), [&](std::int64_t n0, std::int64_t n1) {
      run_product(down_, kernels_, {.act = view, .scratch = scratch_.of(team)},
                  {.y = dst_ + n0, .stride = down_.n, .m_rows = rows, .n0 = n0, .n1 = n1});
    });
  }

  const KernelTable& kernels_;
  const float* x_;
  float* dst_;
  LiveRows rows_;
  GateUp gate_up_;
  Projection down_;
  RoundedInput input_;
  HiddenRows hidden_;
  PerWorker<std::byte> scratch_;
};

const char* declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  for (const Slot& slot : node.slots) {
    if (const char* why = why_not_projection(graph, kernels, slot)) return why;
    if (slot.tapped) return "a tapped slot needs its input in memory";
  }
  return nullptr;
}

}  // namespace

const OpImpl kFfn{"ffn", declines, bind_as<Ffn>};

}  // namespace ggml::cpu
