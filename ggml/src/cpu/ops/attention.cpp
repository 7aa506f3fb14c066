#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/ops/kv_cache.h"
#include "cpu/ops/registry.h"

// Flash attention over blocks of 64 cells. An item is a tile of query rows of one span and one KV head: all query heads
// of the group and a few rows are packed into one matrix, so that each key and value is loaded once for all of them.
// The softmax is taken block by block with a running maximum (arXiv:2205.14135).
//
// A span of few rows has few items, so its cells are cut into splits of a fixed length, each an item that leaves an
// unfinished sum; a second loop merges them. The length does not depend on the number of threads: neither do results.

namespace ggml::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int kTileVectors = 32;  // query vectors (rows x heads of a group) of a tile; K, acc and scores fit into L1
constexpr int kMaxSplitRows = 4;  // spans of more rows have enough items of their own
constexpr int kShortSplit = 8;    // blocks per split: 512 cells
constexpr int kLongSplit = 16;    // where tables are long, so that unfinished sums stay few
constexpr std::int64_t kLongTable = 512;

/// What a span's rows are cut into.
struct Cut {
  int tiles = 0;  // of rows
  int tile_rows = 0;
  int splits = 0;  // of cells; 1: the items finish their rows themselves
  int first_block = 0, n_blocks = 0;

  [[nodiscard]] std::int64_t items(int n_head_kv) const noexcept { return std::int64_t{tiles} * splits * n_head_kv; }
};

class Attention final : public BoundOp {
 public:
  Attention(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<AttentionParams>(node.params)),
        vec_(c.kernels().vec),
        qk_(c.kernels().kv_of(p_.kv.k_type).qk),
        pv_(c.kernels().kv_of(p_.kv.v_type).pv),
        appender_(p_.kv, c.kernels()),
        q_(c.data<const float>(node.src[0])),
        k_(c.data<const float>(node.src[1])),
        v_(c.data<const float>(node.src[2])),
        cache_(p_.kv, c.address(node.src[3]), c.data<const std::int32_t>(node.src[5])),
        spans_(c.data<const AttnSpan>(node.src[4])),
        sinks_(p_.has_sinks ? c.data<const float>(node.slots[0].weight) : nullptr),
        dst_(c.data<float>(node.dst[0])),
        group_(p_.n_head / p_.kv.n_head_kv),
        tile_rows_(std::max(1, kTileVectors / group_)) {
    const std::int64_t table = c.tensor(node.src[5]).shape.elements();
    const std::int64_t max_spans = c.tensor(node.src[4]).shape[1];
    split_blocks_ = table < kLongTable ? kShortSplit : kLongSplit;
    const std::int64_t vectors = std::int64_t{tile_rows_} * group_;
    q_tile_ = PerWorker<float>(carver, c.n_workers(), vectors * p_.kv.dk);
    scores_ = PerWorker<float>(carver, c.n_workers(), vectors * kKvBlockTokens);
    acc_ = PerWorker<float>(carver, c.n_workers(), vectors * (p_.kv.dv + 2));
    // A span that is split has more than split_blocks_ table entries of its own, and each of its splits but the last
    // covers split_blocks_ of them.
    const std::int64_t whole_splits = table / split_blocks_;
    const std::int64_t max_splits = whole_splits + std::min(whole_splits, max_spans);
    const std::int64_t max_rows = std::min<std::int64_t>(kMaxSplitRows, c.graph().token_bucket);
    partial_ = carver.array<float>(max_splits * max_rows * p_.n_head * (p_.kv.dv + 2));
    for (int h = 0; h < p_.n_head; ++h) slopes_.push_back(alibi_slope(p_.max_alibi_bias, p_.n_head, h));
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    appender_.append({k_, v_, cache_, spans_, counts.n_spans}, team.worker(), team.size());
    team.barrier();
    std::int64_t n_items = 0;
    bool any_split = false;
    for (int s = 0; s < counts.n_spans; ++s) {
      const Cut cut = cut_span(spans_[s]);
      n_items += cut.items(p_.kv.n_head_kv);
      any_split = any_split || cut.splits > 1;
    }
    team.for_chunks(n_items, 1, [&](std::int64_t begin, std::int64_t) { run_item(team, begin, counts.n_spans); });
    if (!any_split) return;
    team.barrier();
    merge(team, counts.n_spans);
  }

 private:
  /// The unfinished sums of a tile: per vector the maximum, the sum of weights, and the weighted values.
  struct Sums {
    float* max;  // [vectors]
    float* sum;  // [vectors]
    float* acc;  // [vectors][dv]
  };
  /// A tile being worked on.
  struct Tile {
    const AttnSpan* span;
    int row0, n_rows;  // rows of the span
    int head_kv;
    int n_vectors;  // n_rows * group
    int n_cells;    // of the sequence, with the new ones
    int end;        // cells from here on are seen by no row
    float* q;       // [vectors][dk], scaled
    float* scores;  // [vectors][64]
    Sums sums;
  };

  [[nodiscard]] Cut cut_span(const AttnSpan& span) const noexcept {
    Cut cut;
    if (span.n_rows <= 0) return cut;
    cut.tile_rows = std::min<int>(tile_rows_, span.n_rows);
    cut.tiles = (span.n_rows + cut.tile_rows - 1) / cut.tile_rows;
    const CellRange cells = cells_of(span, 0, span.n_rows);
    cut.first_block = cells.begin / kKvBlockTokens;
    cut.n_blocks = (cells.end + kKvBlockTokens - 1) / kKvBlockTokens - cut.first_block;
    const bool can_split = cut.tiles == 1 && span.n_rows <= kMaxSplitRows;
    cut.splits = can_split ? std::max(1, (cut.n_blocks + split_blocks_ - 1) / split_blocks_) : 1;
    return cut;
  }

  /// Cells that at least one of the rows sees, without those in blocks before the table's first.
  [[nodiscard]] CellRange cells_of(const AttnSpan& span, int row0, int n_rows) const noexcept {
    const int n_cells = span.first_cell + span.n_rows;
    const CellRange first = visible_cells(p_, span.first_cell + row0, n_cells);
    const CellRange last = visible_cells(p_, span.first_cell + row0 + n_rows - 1, n_cells);
    const int stored = span.first_block * kKvBlockTokens;
    return {std::max(stored, std::min(first.begin, last.begin)), std::max(first.end, last.end)};
  }

  void run_item(Team& team, std::int64_t item, int n_spans) const noexcept {
    std::int64_t partial_row = 0;
    for (int s = 0; s < n_spans; ++s) {
      const AttnSpan& span = spans_[s];
      const Cut cut = cut_span(span);
      const std::int64_t n = cut.items(p_.kv.n_head_kv);
      if (item < n) {
        run_tile(team, span, cut, item, partial_row);
        return;
      }
      item -= n;
      if (cut.splits > 1) partial_row += std::int64_t{cut.splits} * span.n_rows * p_.n_head;
    }
  }

  void run_tile(Team& team, const AttnSpan& span, const Cut& cut, std::int64_t item,
                std::int64_t partial_row) const noexcept {
    Tile t{};
    t.span = &span;
    t.head_kv = static_cast<int>(item % p_.kv.n_head_kv);
    const int rest = static_cast<int>(item / p_.kv.n_head_kv);
    const int split = rest % cut.splits;
    // The last rows see most cells: they go first, so that no long item is left for the end.
    const int tile = cut.tiles - 1 - rest / cut.splits;
    t.row0 = tile * cut.tile_rows;
    t.n_rows = std::min(cut.tile_rows, span.n_rows - t.row0);
    t.n_vectors = t.n_rows * group_;
    t.n_cells = span.first_cell + span.n_rows;
    t.q = q_tile_.of(team);
    t.scores = scores_.of(team);
    t.sums = cut.splits == 1 ? sums_at(acc_.of(team), t.n_vectors) : partial_sums(partial_row, span, split, t.head_kv);
    load_queries(t);
    const CellRange cells = cells_of(span, t.row0, t.n_rows);
    t.end = cells.end;
    int block = cells.begin / kKvBlockTokens;
    int end = (cells.end + kKvBlockTokens - 1) / kKvBlockTokens;
    if (cut.splits > 1) {
      block = cut.first_block + split * split_blocks_;
      end = std::min(end, block + split_blocks_);
    }
    for (; block < end; ++block) add_block(t, block);
    if (cut.splits == 1) finish(t.sums, t);
  }

  static Sums sums_at(float* base, int n_vectors) noexcept { return {base, base + n_vectors, base + 2 * n_vectors}; }

  [[nodiscard]] Sums partial_sums(std::int64_t partial_row, const AttnSpan& span, int split,
                                  int head_kv) const noexcept {
    const std::int64_t vectors = std::int64_t{span.n_rows} * group_;
    const std::int64_t row = partial_row + (std::int64_t{split} * p_.kv.n_head_kv + head_kv) * vectors;
    return sums_at(partial_ + row * (p_.kv.dv + 2), static_cast<int>(vectors));
  }

  void load_queries(const Tile& t) const noexcept {
    for (int i = 0; i < t.n_vectors; ++i) {
      const std::int64_t row = std::int64_t{t.span->first_row} + t.row0 + i / group_;
      const std::int64_t head = std::int64_t{t.head_kv} * group_ + i % group_;
      vec_.scale(q_ + (row * p_.n_head + head) * p_.kv.dk, p_.scale, p_.kv.dk, t.q + std::int64_t{i} * p_.kv.dk);
      t.sums.max[i] = kMinusInf;
      t.sums.sum[i] = 0.0f;
    }
    std::memset(t.sums.acc, 0,
                sizeof(float) * static_cast<std::size_t>(t.n_vectors) * static_cast<std::size_t>(p_.kv.dv));
  }

  void add_block(const Tile& t, int block) const noexcept {
    const std::byte* data = cache_.block(*t.span, block);
    if (data == nullptr) return;
    const int base = block * kKvBlockTokens;
    const int n = std::min(kKvBlockTokens, t.end - base);
    qk_({t.q, p_.kv.dk, t.n_vectors, KvCache::tile(cache_.k(), data, t.head_kv, 0, n), t.scores, kKvBlockTokens});
    if (p_.softcap > 0.0f) cap_scores(t, n);
    for (int r = 0; r < t.n_rows; ++r) mask_row(t, r, base, n);
    for (int i = 0; i < t.n_vectors; ++i) soften(t, i, n);
    pv_({t.scores, kKvBlockTokens, t.n_vectors, KvCache::tile(cache_.v(), data, t.head_kv, 0, n), t.sums.acc,
         p_.kv.dv});
  }

  void cap_scores(const Tile& t, int n) const noexcept {
    for (int i = 0; i < t.n_vectors; ++i) {
      float* s = t.scores + i * kKvBlockTokens;
      vec_.scale(s, 1.0f / p_.softcap, n, s);
      vec_.tanh(s, n, s);
      vec_.scale(s, p_.softcap, n, s);
    }
  }

  /// Takes out the cells a row does not see, and adds the ALiBi bias.
  void mask_row(const Tile& t, int r, int base, int n) const noexcept {
    const int cell = t.span->first_cell + t.row0 + r;
    const CellRange seen = visible_cells(p_, cell, t.n_cells);
    const int begin = std::clamp(seen.begin - base, 0, n);
    const int end = std::clamp(seen.end - base, begin, n);
    for (int h = 0; h < group_; ++h) {
      float* s = t.scores + (r * group_ + h) * kKvBlockTokens;
      std::fill(s, s + begin, kMinusInf);
      std::fill(s + end, s + n, kMinusInf);
      const int head = t.head_kv * group_ + h;
      const float slope = slopes_[static_cast<std::size_t>(head)];
      if (slope == 0.0f) continue;
      for (int u = begin; u < end; ++u) s[u] -= slope * static_cast<float>(std::abs(cell - (base + u)));
    }
  }

  /// Scores of one vector to weights under the running maximum.
  void soften(const Tile& t, int i, int n) const noexcept {
    float* s = t.scores + i * kKvBlockTokens;
    const float old_max = t.sums.max[i];
    const float max = std::max(old_max, vec_.max(s, n));
    if (max == kMinusInf) {
      std::fill(s, s + n, 0.0f);
      return;
    }
    if (max > old_max && old_max != kMinusInf) {
      const float shrink = std::exp(old_max - max);
      float* acc = t.sums.acc + std::int64_t{i} * p_.kv.dv;
      vec_.scale(acc, shrink, p_.kv.dv, acc);
      t.sums.sum[i] *= shrink;
    }
    t.sums.max[i] = max;
    t.sums.sum[i] += vec_.exp_sub_max(s, max, n, s);
  }

  /// Divides by the sum of weights, with the sink's share in it, and writes the rows.
  void finish(const Sums& sums, const Tile& t) const noexcept {
    for (int i = 0; i < t.n_vectors; ++i) {
      const std::int64_t row = std::int64_t{t.span->first_row} + t.row0 + i / group_;
      const int head = t.head_kv * group_ + i % group_;
      float factor = 1.0f;
      float sum = sums.sum[i];
      if (sinks_ != nullptr && sum > 0.0f) {
        const float max = std::max(sums.max[i], sinks_[head]);
        factor = std::exp(sums.max[i] - max);
        sum = sum * factor + std::exp(sinks_[head] - max);
      }
      vec_.scale(sums.acc + std::int64_t{i} * p_.kv.dv, sum > 0.0f ? factor / sum : 0.0f, p_.kv.dv,
                 dst_ + (row * p_.n_head + head) * p_.kv.dv);
    }
  }

  /// Adds up the splits of each (span, head) in their order.
  void merge(Team& team, int n_spans) const noexcept {
    const std::int64_t n = std::int64_t{n_spans} * p_.kv.n_head_kv;
    team.for_chunks(n, 1, [&](std::int64_t item, std::int64_t) {
      const int wanted = static_cast<int>(item / p_.kv.n_head_kv);
      std::int64_t partial_row = 0;
      for (int s = 0; s < wanted; ++s) {
        const Cut cut = cut_span(spans_[s]);
        if (cut.splits > 1) partial_row += std::int64_t{cut.splits} * spans_[s].n_rows * p_.n_head;
      }
      const Cut cut = cut_span(spans_[wanted]);
      if (cut.splits > 1) merge_span(spans_[wanted], cut, partial_row, static_cast<int>(item % p_.kv.n_head_kv));
    });
  }

  void merge_span(const AttnSpan& span, const Cut& cut, std::int64_t partial_row, int head_kv) const noexcept {
    Tile t{};
    t.span = &span;
    t.n_rows = span.n_rows;
    t.head_kv = head_kv;
    t.n_vectors = span.n_rows * group_;
    const Sums total = partial_sums(partial_row, span, 0, head_kv);
    for (int split = 1; split < cut.splits; ++split) {
      const Sums part = partial_sums(partial_row, span, split, head_kv);
      for (int i = 0; i < t.n_vectors; ++i) {
        const float max = std::max(total.max[i], part.max[i]);
        if (max == kMinusInf) continue;
        const float keep = std::exp(total.max[i] - max);
        const float take = std::exp(part.max[i] - max);
        float* acc = total.acc + std::int64_t{i} * p_.kv.dv;
        vec_.scale(acc, keep, p_.kv.dv, acc);
        vec_.axpy(take, part.acc + std::int64_t{i} * p_.kv.dv, p_.kv.dv, acc);
        total.sum[i] = total.sum[i] * keep + part.sum[i] * take;
        total.max[i] = max;
      }
    }
    finish(total, t);
  }

  const AttentionParams p_;
  const VecKernels& vec_;
  const QkFn qk_;
  const PvFn pv_;
  const KvAppender appender_;
  const float* q_;
  const float* k_;
  const float* v_;
  const KvCache cache_;
  const AttnSpan* spans_;
  const float* sinks_;
  float* dst_;
  const int group_;
  const int tile_rows_;
  int split_blocks_ = kShortSplit;
  PerWorker<float> q_tile_, scores_, acc_;
  float* partial_ = nullptr;
  std::vector<float> slopes_;
};

const char* declines(const Graph&, const KernelTable& kernels, const Node& node) {
  const auto& p = std::get<AttentionParams>(node.params);
  if (!p.flash) return "flash attention is switched off";
  if (kernels.kv_of(p.kv.k_type).qk == nullptr) return "no kernel for this type of K";
  if (p.kv.dv <= 0 || kernels.kv_of(p.kv.v_type).pv == nullptr) return "no kernel for this type of V";
  return nullptr;
}

}  // namespace

const OpImpl kAttention{"flash_attention", declines, bind_as<Attention>};

}  // namespace ggml::cpu
