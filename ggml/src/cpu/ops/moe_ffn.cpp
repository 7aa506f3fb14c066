#include <algorithm>
#include <cstring>

#include "cpu/ops/expert_groups.h"
#include "cpu/ops/feed_forward.h"
#include "cpu/ops/registry.h"

// Pairs (token, used expert) are ordered by expert. Gate and up: items are (expert, columns); an expert's weights are
// read once for all of its tokens. Down: items are columns of the result, over all experts; the worker that owns the
// columns sums each token's experts in the order of its ids, so that no sum depends on who came first and nothing is
// added twice; or writes what each of them gave, where that is asked for.

namespace ggml::cpu {
namespace {

constexpr std::int64_t kSumTileFloats = 256 * 1024;  // per worker, pairs x columns: 1 MiB stays in the outer cache
constexpr std::int64_t kMaxSumColumns = 256;

/// Columns of the result that one item of the second half does for `pairs` pairs.
std::int64_t sum_columns(std::int64_t pairs) noexcept {
  const std::int64_t columns = kSumTileFloats / std::max<std::int64_t>(pairs, 1) / kRowUnit * kRowUnit;
  return std::clamp(columns, kRowUnit, kMaxSumColumns);
}

class MoeFfn final : public BoundOp {
 public:
  MoeFfn(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<MoeFfnParams>(node.params)),
        kernels_(c.kernels()),
        x_(c.data<const float>(node.src[0])),
        ids_(c.data<const std::int32_t>(node.src[1])),
        weights_(p_.summed ? c.data<const float>(node.src[2]) : nullptr),
        dst_(c.data<float>(node.dst[0])),
        n_used_(static_cast<int>(c.tensor(node.src[1]).shape[0])) {
    gate_up_ =
        GateUp(c, {{p_.act, p_.limit}, p_.gated, p_.fused_gate_up}, std::span(node.slots).first(node.slots.size() - 1));
    down_ = bind_projection(c, node.slots.back());
    rows_ = c.live_rows(node.src[0], gate_up_.k());
    const std::int64_t capacity = rows_.capacity;
    const std::int64_t pairs = capacity * n_used_;
    input_ = RoundedInput(c, gate_up_.projections(), gate_up_.k(), capacity, carver);
    // A token names an expert once, so a group has at most `capacity` pairs; should ids repeat, items take them in
    // parts.
    max_item_rows_ = std::max(capacity, std::min(pairs, HiddenRows::kManyRows - 1));
    hidden_ = HiddenRows(c, down_, pairs, max_item_rows_, carver);
    gate_up_.take_scratch(c, max_item_rows_, kActPiece, carver);
    scratch_ = PerWorker<std::byte>(carver, c.n_workers(), static_cast<std::int64_t>(matmul_scratch_bytes(pairs)));
    shared_groups_ = carver.array<std::int32_t>(ExpertGroups::words(pairs, p_.n_expert));
    own_groups_ = PerWorker<std::int32_t>(carver, c.n_workers(),
                                          ExpertGroups::words(input_.private_rows() * n_used_, p_.n_expert));
    sums_ = PerWorker<float>(carver, c.n_workers(),
                             std::max(std::min(pairs * kMaxSumColumns, kSumTileFloats), pairs * kRowUnit));
    max_pairs_ = pairs;
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t rows = rows_.of(counts);
    if (rows == 0) return;
    const RoundedInput::View x = input_.round(team, x_, gate_up_.k(), rows);
    const bool alone = input_.is_private(rows);
    ExpertGroups groups = alone ? ExpertGroups(own_groups_.of(team), input_.private_rows() * n_used_, p_.n_expert)
                                : ExpertGroups(shared_groups_, max_pairs_, p_.n_expert);
    if (alone || team.worker() == 0) {
      groups.build({ids_, rows, n_used_, p_.expert_begin, p_.expert_end == 0 ? p_.n_expert : p_.expert_end});
    }
    if (!alone) team.barrier();
    const ActView hidden =
        groups.n_positions() < HiddenRows::kManyRows ? run_few(team, x, groups) : run_many(team, x, groups);
    run_down(team, hidden, groups, rows);
  }

 private:
  ActView run_few(Team& team, const RoundedInput::View& x, const ExpertGroups& groups) const noexcept {
    const std::int64_t width = gate_up_.width();
    const std::int64_t units = (width + kRowUnit - 1) / kRowUnit;  // per expert
    const std::int64_t n_units = units * groups.n_groups();
    const std::int64_t chunk = std::min<std::int64_t>(chunk_for(n_units, team.size(), 1), kActPiece / kRowUnit);
    team.for_chunks(n_units, chunk, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t group = begin / units;
        const std::int64_t last = std::min(end, (group + 1) * units);
        const std::int64_t n0 = (begin - group * units) * kRowUnit;
        const std::int64_t n1 = std::min((last - group * units) * kRowUnit, width);
        gate_up_.run(team, input_of(x, groups, group),
                     {.y = hidden_.values() + groups.begin(group) * width + n0,
                      .stride = width,
                      .m_rows = groups.size(group),
                      .n0 = n0,
                      .n1 = n1});
        begin = last;
      }
    });
    team.barrier();
    const std::int64_t n = groups.n_positions();
    const RoundedInput::View view = hidden_.rounded().round(team, hidden_.values(), width, n);
    if (!hidden_.rounded().is_private(n)) team.barrier();
    return hidden_.rounded().of(view, down_.act);
  }

  ActView run_many(Team& team, const RoundedInput::View& x, const ExpertGroups& groups) const noexcept {
    const ActView view = hidden_.rounded().shared(down_.act, groups.n_positions());
    const std::int64_t pieces = hidden_.pieces();
    team.for_chunks(pieces * groups.n_groups(), 1, [&](std::int64_t item, std::int64_t) {
      const std::int64_t group = item / pieces;
      GateUp::Input in = input_of(x, groups, group);
      for (std::int64_t row = 0; row < groups.size(group); row += max_item_rows_) {
        const std::int64_t m_rows = std::min(max_item_rows_, groups.size(group) - row);
        in.src_rows = groups.tokens(group) + row;
        hidden_.run_piece(team, gate_up_, in, {item % pieces, groups.begin(group) + row, m_rows}, view);
      }
    });
    team.barrier();
    return view;
  }

  [[nodiscard]] GateUp::Input input_of(const RoundedInput::View& x, const ExpertGroups& groups,
                                       std::int64_t group) const noexcept {
    return {input_, x, groups.tokens(group), groups.expert(group)};
  }

  void run_down(Team& team, const ActView& hidden, const ExpertGroups& groups, std::int64_t rows) const noexcept {
    const std::int64_t most = sum_columns(groups.n_positions());
    const std::int64_t chunk = std::min(chunk_for(down_.n, team.size(), kRowUnit), most);
    team.for_chunks(down_.n, chunk, [&](std::int64_t n0, std::int64_t n1) {
      float* tile = sums_.of(team);  // [positions][n1 - n0]
      const std::int64_t n = n1 - n0;
      for (int group = 0; group < groups.n_groups(); ++group) {
        ActView act = hidden;
        act.data += groups.begin(group) * hidden.row_stride;
        run_product(
            down_, kernels_, {.act = act, .expert = groups.expert(group), .scratch = scratch_.of(team)},
            {.y = tile + groups.begin(group) * n, .stride = n, .m_rows = groups.size(group), .n0 = n0, .n1 = n1});
      }
      for (std::int64_t row = 0; row < rows; ++row) {
        if (p_.summed)
          sum_experts(groups, row, tile, {n0, n1});
        else
          copy_experts(groups, row, tile, {n0, n1});
      }
    });
  }

  void copy_experts(const ExpertGroups& groups, std::int64_t row, const float* tile,
                    Team::Range columns) const noexcept {
    const std::int64_t n = columns.end - columns.begin;
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(n);
    for (std::int64_t pair = row * n_used_; pair < (row + 1) * n_used_; ++pair) {
      const std::int32_t position = groups.position(pair);
      float* y = dst_ + pair * down_.n + columns.begin;
      if (position < 0)
        std::memset(y, 0, bytes);
      else
        std::memcpy(y, tile + position * n, bytes);
    }
  }

  void sum_experts(const ExpertGroups& groups, std::int64_t row, const float* tile,
                   Team::Range columns) const noexcept {
    const std::int64_t n = columns.end - columns.begin;
    float* y = dst_ + row * down_.n + columns.begin;
    bool first = true;
    for (std::int64_t pair = row * n_used_; pair < (row + 1) * n_used_; ++pair) {
      const std::int32_t position = groups.position(pair);
      if (position < 0) continue;
      const float* part = tile + position * n;
      if (first) {
        kernels_.vec.scale(part, weights_[pair], n, y);
      } else {
        kernels_.vec.axpy(weights_[pair], part, n, y);
      }
      first = false;
    }
    if (first) std::memset(y, 0, sizeof(float) * static_cast<std::size_t>(n));
  }

  const MoeFfnParams p_;
  const KernelTable& kernels_;
  const float* x_;
  const std::int32_t* ids_;
  const float* weights_;
  float* dst_;
  const int n_used_;
  LiveRows rows_;
  GateUp gate_up_;
  Projection down_;
  RoundedInput input_;
  HiddenRows hidden_;
  PerWorker<std::byte> scratch_;
  std::int32_t* shared_groups_ = nullptr;
  PerWorker<std::int32_t> own_groups_;
  PerWorker<float> sums_;
  std::int64_t max_pairs_ = 0;
  std::int64_t max_item_rows_ = 0;
};

const char* declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  if (std::get<MoeFfnParams>(node.params).weight_on_input)
    return "weights on the input give each pair its own input row";
  for (const Slot& slot : node.slots) {
    if (const char* why = why_not_projection(graph, kernels, slot)) return why;
    if (slot.tapped) return "a tapped slot needs its input in memory";
  }
  return nullptr;
}

}  // namespace

const OpImpl kMoeFfn{"moe_ffn", declines, bind_as<MoeFfn>};

}  // namespace ggml::cpu
