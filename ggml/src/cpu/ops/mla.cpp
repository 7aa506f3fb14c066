#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/ops/kv_cache.h"
#include "cpu/ops/projection.h"
#include "cpu/ops/registry.h"

// Latent attention over a cache of one row per token, which all heads share.
//
// Absorbed: each head's query is multiplied by k_b and then meets the latent rows themselves; what comes out is brought
// back by v_up. All heads read the same row, so a tile of 32 vectors (heads x rows) loads it once. Rows are done in
// passes, since a query in latent space is three times as long as one in its own.
//
// Expanded: keys and values of a block of 64 cells are computed per head, in the cache of the core that uses them for
// all rows of the span. That costs kv_rank * (nope + dv) per cell and head whatever the number of rows, and then
// nope + n_rot + dv instead of 2 kv_rank + n_rot per row: worth it from some two hundred rows on.

namespace ggml::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int kTile = 32;  // vectors that share a load of keys
constexpr std::int64_t kPassRows = 128;
constexpr int kSplitVectors = 256;  // spans of more vectors have enough tiles of their own
constexpr int kShortSplit = 8;      // blocks per split
constexpr std::int64_t kMaxSplits = 32;

/// Sums of a tile that are not finished: per vector the maximum, the sum of weights, the weighted values.
struct Sums {
  float* max;
  float* sum;
  float* acc;  // [vectors][width]
};

/// The softmax over cells of one more block, as flash attention takes it.
class OnlineSoftmax {
 public:
  OnlineSoftmax(const VecKernels& vec, std::int64_t width) : vec_(vec), width_(width) {}

  void clear(const Sums& sums, int n_vectors) const noexcept {
    std::fill(sums.max, sums.max + n_vectors, kMinusInf);
    std::fill(sums.sum, sums.sum + n_vectors, 0.0f);
    std::memset(sums.acc, 0, sizeof(float) * static_cast<std::size_t>(n_vectors * width_));
  }
  /// Scores of one vector to weights under the running maximum.
  void add(const Sums& sums, int i, float* scores, int n) const noexcept {
    const float old_max = sums.max[i];
    const float max = std::max(old_max, vec_.max(scores, n));
    if (max == kMinusInf) {
      std::fill(scores, scores + n, 0.0f);
      return;
    }
    if (max > old_max && old_max != kMinusInf) {
      const float shrink = std::exp(old_max - max);
      vec_.scale(sums.acc + i * width_, shrink, width_, sums.acc + i * width_);
      sums.sum[i] *= shrink;
    }
    sums.max[i] = max;
    sums.sum[i] += vec_.exp_sub_max(scores, max, n, scores);
  }
  /// total += part, vector by vector.
  void merge(const Sums& total, const Sums& part, int n_vectors) const noexcept {
    for (int i = 0; i < n_vectors; ++i) {
      const float max = std::max(total.max[i], part.max[i]);
      if (max == kMinusInf) continue;
      const float keep = std::exp(total.max[i] - max), take = std::exp(part.max[i] - max);
      vec_.scale(total.acc + i * width_, keep, width_, total.acc + i * width_);
      vec_.axpy(take, part.acc + i * width_, width_, total.acc + i * width_);
      total.sum[i] = total.sum[i] * keep + part.sum[i] * take;
      total.max[i] = max;
    }
  }
  void finish(const Sums& sums, int i, std::int64_t n, float* y) const noexcept {
    vec_.scale(sums.acc + i * width_, sums.sum[i] > 0.0f ? 1.0f / sums.sum[i] : 0.0f, n, y);
  }

 private:
  const VecKernels& vec_;
  const std::int64_t width_;
};

class Mla final : public BoundOp {
 public:
  Mla(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<MlaParams>(node.params)),
        kernels_(c.kernels()),
        vec_(c.kernels().vec),
        latent_kernels_(c.kernels().kv_of(p_.kv.k_type)),
        float_kernels_(c.kernels().kv_of(DType::f32)),
        dk_(p_.nope + p_.n_rot),
        row_(p_.kv_rank + p_.n_rot),
        q_(c.data<const float>(node.src[0])),
        latent_(c.data<const float>(node.src[1])),
        k_rot_(c.data<const float>(node.src[2])),
        cache_(p_.kv, c.address(node.src[3]), c.data<const std::int32_t>(node.src[5])),
        spans_(c.data<const AttnSpan>(node.src[4])),
        dst_(c.data<float>(node.dst[0])),
        absorb_(heads_matrix(c, node.slots[0], p_.kv_rank)),
        key_up_(heads_matrix(c, node.slots[1], p_.k_up_rows)),
        value_up_(heads_matrix(c, node.slots[2], p_.v_up_rows)),
        latent_softmax_(vec_, row_),
        head_softmax_(vec_, p_.dv) {
    const std::int64_t tokens = c.graph().token_bucket;
    const std::int64_t table = c.tensor(node.src[5]).shape.elements();
    const std::int64_t max_spans = c.tensor(node.src[4]).shape[1];
    const std::int64_t row_bytes = std::int64_t{p_.n_head} * row_ * static_cast<std::int64_t>(sizeof(float));
    pass_rows_ = std::min(tokens, kPassRows);
    if (p_.max_scratch > 0) pass_rows_ = std::clamp<std::int64_t>(p_.max_scratch / row_bytes, 1, pass_rows_);
    split_blocks_ = std::max<std::int64_t>(kShortSplit, (table + kMaxSplits - 1) / kMaxSplits);
    const bool absorbs = p_.expand_from != 1, expands = p_.expand_from > 0 && p_.expand_from <= tokens;
    segments_ = PerWorker<Segment>(carver, c.n_workers(), max_spans);
    scores_ = PerWorker<float>(carver, c.n_workers(), std::int64_t{kTile} * kKvBlockTokens);
    line_ = PerWorker<float>(carver, c.n_workers(), std::max<std::int64_t>(row_, std::int64_t{kTile} * dk_));
    act_ = PerWorker<std::byte>(carver, c.n_workers(), act_scratch());
    scratch_ =
        PerWorker<std::byte>(carver, c.n_workers(), static_cast<std::int64_t>(matmul_scratch_bytes(kKvBlockTokens)));
    if (absorbs) {
      queries_ = carver.array<float>(pass_rows_ * p_.n_head * row_);
      acc_ = PerWorker<float>(carver, c.n_workers(), std::int64_t{kTile} * (row_ + 2));
      // A split span has more than split_blocks_ entries, and each of its splits but the last covers that many.
      const std::int64_t whole = table / split_blocks_;
      const std::int64_t vectors = std::min<std::int64_t>(kSplitVectors, pass_rows_ * p_.n_head);
      partial_ = carver.array<float>((whole + std::min(whole, max_spans)) * vectors * (row_ + 2));
    }
    if (expands) {
      latents_ = PerWorker<float>(carver, c.n_workers(), kKvBlockTokens * row_);
      keys_ = PerWorker<float>(carver, c.n_workers(), kKvBlockTokens * dk_);
      values_ = PerWorker<float>(carver, c.n_workers(), kKvBlockTokens * std::int64_t{p_.dv});
      sums_ = PerWorker<float>(carver, c.n_workers(), tokens * (p_.dv + 2));
    }
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    append(team, counts.n_spans);
    team.barrier();
    Cursor cursor;
    for (;;) {
      const int n = next_pass(counts.n_spans, cursor, segments_.of(team));
      if (n == 0) break;
      run_pass(team, n);
    }
    expand_spans(team, counts.n_spans);
  }

 private:
  /// Rows of a span that are absorbed in one pass.
  struct Segment {
    const AttnSpan* span;
    int row0, n_rows;    // of the span
    std::int64_t first;  // row of queries_
  };
  struct Cursor {
    int span = 0, row = 0;
  };

  static Projection heads_matrix(const BindContext& c, const Slot& slot, std::int64_t rows_per_head) {
    Projection p = bind_projection(c, slot);
    p.expert_bytes = p.row_bytes * rows_per_head;
    return p;
  }

  [[nodiscard]] std::int64_t act_scratch() const {
    const auto bytes = [](const Projection& p, std::int64_t rows) {
      return static_cast<std::int64_t>(act_bytes(p.act, p.k, rows));
    };
    return std::max({bytes(absorb_, kTile), bytes(value_up_, kKvBlockTokens), bytes(key_up_, kKvBlockTokens)});
  }

  [[nodiscard]] bool expands(const AttnSpan& span) const noexcept {
    return p_.expand_from > 0 && span.n_rows >= p_.expand_from;
  }

  /// Latent and rotated part of the new rows, as one key each.
  void append(Team& team, int n_spans) const noexcept {
    float* line = line_.of(team);
    for (int s = 0; s < n_spans; ++s) {
      const AttnSpan& span = spans_[s];
      for (int r = team.worker(); r < span.n_rows; r += team.size()) {
        const int cell = span.first_cell + r;
        std::byte* block = cache_.block(span, cell / kKvBlockTokens);
        if (block == nullptr) continue;
        const std::int64_t row = std::int64_t{span.first_row} + r;
        std::memcpy(line, latent_ + row * p_.kv_rank, sizeof(float) * static_cast<std::size_t>(p_.kv_rank));
        std::memcpy(line + p_.kv_rank, k_rot_ + row * p_.n_rot, sizeof(float) * static_cast<std::size_t>(p_.n_rot));
        KvCache::store(latent_kernels_, cache_.k(), block, 0, cell % kKvBlockTokens, line);
      }
    }
  }

  /// The next rows whose queries fit; the same on every worker.
  int next_pass(int n_spans, Cursor& cursor, Segment* segments) const noexcept {
    int n = 0;
    std::int64_t used = 0;
    while (cursor.span < n_spans && used < pass_rows_) {
      const AttnSpan& span = spans_[cursor.span];
      if (expands(span) || cursor.row >= span.n_rows) {
        ++cursor.span;
        cursor.row = 0;
        continue;
      }
      const int rows = static_cast<int>(std::min<std::int64_t>(span.n_rows - cursor.row, pass_rows_ - used));
      segments[n++] = {&span, cursor.row, rows, used};
      used += rows;
      cursor.row += rows;
    }
    return n;
  }

  void run_pass(Team& team, int n_segments) const noexcept {
    const Segment* segments = segments_.of(team);
    for_row_tiles(team, segments, n_segments,
                  [&](const Segment& s, int row, int n, int head) { absorb(team, s, row, n, head); });
    team.barrier();
    std::int64_t n_items = 0;
    for (int i = 0; i < n_segments; ++i) n_items += items(segments[i]);
    team.for_chunks(n_items, 1, [&](std::int64_t item, std::int64_t) {
      std::int64_t partial = 0;
      for (int i = 0; i < n_segments; ++i) {
        const std::int64_t n = items(segments[i]);
        if (item < n) return attend(team, segments[i], item, partial);
        item -= n;
        partial += partial_vectors(segments[i]);
      }
    });
    team.barrier();
    merge_splits(team, segments, n_segments);
    for_row_tiles(team, segments, n_segments,
                  [&](const Segment& s, int row, int n, int head) { bring_back(team, s, row, n, head); });
    team.barrier();
  }

  /// Calls f(segment, row, n, head) for up to kTile rows of one head at a time.
  template <class F>
  void for_row_tiles(Team& team, const Segment* segments, int n_segments, const F& f) const noexcept {
    std::int64_t n_items = 0;
    const auto tiles = [&](const Segment& s) { return (s.n_rows + kTile - 1) / kTile; };
    for (int i = 0; i < n_segments; ++i) n_items += std::int64_t{tiles(segments[i])} * p_.n_head;
    team.for_chunks(n_items, 1, [&](std::int64_t item, std::int64_t) {
      for (int i = 0; i < n_segments; ++i) {
        const Segment& s = segments[i];
        const std::int64_t n = std::int64_t{tiles(s)} * p_.n_head;
        if (item >= n) {
          item -= n;
          continue;
        }
        const int row = static_cast<int>(item / p_.n_head) * kTile;
        f(s, row, std::min(kTile, s.n_rows - row), static_cast<int>(item % p_.n_head));
        return;
      }
    });
  }

  [[nodiscard]] float* query(std::int64_t row, int head) const noexcept {
    return queries_ + (row * p_.n_head + head) * row_;
  }

  /// Rows of x (x_stride apart) times rows [begin, begin + count) of one head's matrix.
  struct HeadProduct {
    const float* x;
    std::int64_t x_stride;
    std::int64_t rows;
    int head;
    std::int64_t begin, count;
    float* y;
    std::int64_t y_stride;
  };
  void multiply(Team& team, const Projection& w, const HeadProduct& a) const noexcept {
    const ActView act = act_view(w.act, act_.of(team), w.k, a.rows);
    quantise_act_rows(kernels_, w.act, a.x, a.x_stride, w.k, act, 0, a.rows);
    run_product(w, kernels_, {.act = act, .expert = a.head, .scratch = scratch_.of(team)},
                {.y = a.y, .stride = a.y_stride, .m_rows = a.rows, .n0 = a.begin, .n1 = a.begin + a.count});
  }

  void absorb(Team& team, const Segment& s, int row, int n, int head) const noexcept {
    const std::int64_t stride = std::int64_t{p_.n_head} * dk_;
    const float* q = q_ + (std::int64_t{s.span->first_row} + s.row0 + row) * stride + std::int64_t{head} * dk_;
    float* y = query(s.first + row, head);
    const std::int64_t y_stride = std::int64_t{p_.n_head} * row_;
    multiply(team, absorb_, {q, stride, n, head, 0, p_.kv_rank, y, y_stride});
    for (int i = 0; i < n; ++i) {
      float* out = y + i * y_stride;
      std::memcpy(out + p_.kv_rank, q + i * stride + p_.nope, sizeof(float) * static_cast<std::size_t>(p_.n_rot));
      vec_.scale(out, p_.scale, row_, out);
    }
  }

  void bring_back(Team& team, const Segment& s, int row, int n, int head) const noexcept {
    const std::int64_t stride = std::int64_t{p_.n_head} * p_.dv;
    float* y = dst_ + (std::int64_t{s.span->first_row} + s.row0 + row) * stride + std::int64_t{head} * p_.dv;
    multiply(team, value_up_,
             {query(s.first + row, head), std::int64_t{p_.n_head} * row_, n, head, p_.v_up_begin, p_.dv, y, stride});
  }

  [[nodiscard]] int blocks(const Segment& s) const noexcept {
    return (s.span->first_cell + s.row0 + s.n_rows + kKvBlockTokens - 1) / kKvBlockTokens;
  }
  [[nodiscard]] std::int64_t splits(const Segment& s) const noexcept {
    if (std::int64_t{s.n_rows} * p_.n_head > kSplitVectors) return 1;
    return std::max<std::int64_t>(1, (blocks(s) + split_blocks_ - 1) / split_blocks_);
  }
  [[nodiscard]] std::int64_t tiles(const Segment& s) const noexcept {
    return (std::int64_t{s.n_rows} * p_.n_head + kTile - 1) / kTile;
  }
  [[nodiscard]] std::int64_t items(const Segment& s) const noexcept { return tiles(s) * splits(s); }
  [[nodiscard]] std::int64_t partial_vectors(const Segment& s) const noexcept {
    return splits(s) == 1 ? 0 : splits(s) * s.n_rows * p_.n_head;
  }

  /// Sums of all vectors of a segment in one split.
  [[nodiscard]] Sums partial(const Segment& s, std::int64_t first, std::int64_t split) const noexcept {
    const std::int64_t vectors = std::int64_t{s.n_rows} * p_.n_head;
    float* base = partial_ + (first + split * vectors) * (row_ + 2);
    return {base, base + vectors, base + 2 * vectors};
  }

  /// One tile of vectors over the cells of one split.
  void attend(Team& team, const Segment& s, std::int64_t item, std::int64_t first_partial) const noexcept {
    const std::int64_t n_splits = splits(s), split = item % n_splits;
    const std::int64_t vector0 = (tiles(s) - 1 - item / n_splits) * kTile;  // the last rows see most: first
    const auto n = static_cast<int>(std::min<std::int64_t>(kTile, std::int64_t{s.n_rows} * p_.n_head - vector0));
    float* queries = queries_ + (s.first * p_.n_head + vector0) * row_;
    float* own = acc_.of(team);
    Sums sums{own, own + kTile, own + 2 * kTile};
    if (n_splits > 1) {
      const Sums all = partial(s, first_partial, split);
      sums = {all.max + vector0, all.sum + vector0, all.acc + vector0 * row_};
    }
    latent_softmax_.clear(sums, n);
    const int first_cell = s.span->first_cell + s.row0;
    const int end = first_cell + static_cast<int>((vector0 + n - 1) / p_.n_head) + 1;
    int block = 0, last = (end + kKvBlockTokens - 1) / kKvBlockTokens;
    if (n_splits > 1) {
      block = static_cast<int>(split * split_blocks_);
      last = std::min(last, block + static_cast<int>(split_blocks_));
    }
    float* scores = scores_.of(team);
    for (; block < last; ++block) {
      const std::byte* data = cache_.block(*s.span, block);
      if (data == nullptr) continue;
      const int base = block * kKvBlockTokens, cells = std::min(kKvBlockTokens, end - base);
      const KvTile keys = KvCache::tile(cache_.k(), data, 0, 0, cells);
      latent_kernels_.qk({queries, row_, n, keys, scores, kKvBlockTokens});
      for (int i = 0; i < n; ++i) {
        float* line = scores + i * kKvBlockTokens;
        const int seen = first_cell + static_cast<int>((vector0 + i) / p_.n_head) + 1 - base;
        if (seen < cells) std::fill(line + std::max(seen, 0), line + cells, kMinusInf);
        latent_softmax_.add(sums, i, line, cells);
      }
      // Values are the keys without their rotated end, which is summed up along with them and left unused.
      latent_kernels_.pv({scores, kKvBlockTokens, n, keys, sums.acc, row_});
    }
    if (n_splits > 1) return;
    for (int i = 0; i < n; ++i) latent_softmax_.finish(sums, i, p_.kv_rank, queries + i * row_);
  }

  void merge_splits(Team& team, const Segment* segments, int n_segments) const noexcept {
    bool any = false;
    for (int i = 0; i < n_segments; ++i) any = any || splits(segments[i]) > 1;
    if (!any) return;
    std::int64_t first = 0;
    for (int i = 0; i < n_segments; ++i) {
      const Segment& s = segments[i];
      const std::int64_t n_splits = splits(s), vectors = std::int64_t{s.n_rows} * p_.n_head;
      if (n_splits == 1) continue;
      const Team::Range own = team.part(vectors);
      for (std::int64_t v = own.begin; v < own.end; ++v) {
        const auto at = [&](std::int64_t split) {
          const Sums all = partial(s, first, split);
          return Sums{all.max + v, all.sum + v, all.acc + v * row_};
        };
        for (std::int64_t split = 1; split < n_splits; ++split) latent_softmax_.merge(at(0), at(split), 1);
        latent_softmax_.finish(at(0), 0, p_.kv_rank, queries_ + (s.first * p_.n_head + v) * row_);
      }
      first += partial_vectors(s);
    }
    team.barrier();
  }

  /// Spans in the expanded form: an item is one head of one span.
  void expand_spans(Team& team, int n_spans) const noexcept {
    std::int64_t n_items = 0;
    for (int s = 0; s < n_spans; ++s) n_items += expands(spans_[s]) ? p_.n_head : 0;
    team.for_chunks(n_items, 1, [&](std::int64_t item, std::int64_t) {
      for (int s = 0; s < n_spans; ++s) {
        if (!expands(spans_[s])) continue;
        if (item < p_.n_head) return expand(team, spans_[s], static_cast<int>(item));
        item -= p_.n_head;
      }
    });
  }

  void expand(Team& team, const AttnSpan& span, int head) const noexcept {
    float* base = sums_.of(team);
    const Sums sums{base, base + span.n_rows, base + 2 * std::int64_t{span.n_rows}};
    head_softmax_.clear(sums, span.n_rows);
    const int n_cells = span.first_cell + span.n_rows;
    for (int block = 0; block * kKvBlockTokens < n_cells; ++block) {
      const std::byte* data = cache_.block(span, block);
      if (data == nullptr) continue;
      const int first = block * kKvBlockTokens, n = std::min(kKvBlockTokens, n_cells - first);
      make_keys_and_values(team, data, n, head);
      for (int row = std::max(0, first - span.first_cell) / kTile * kTile; row < span.n_rows; row += kTile)
        add_block(team, span, {head, row, first, n}, sums);
    }
    for (int i = 0; i < span.n_rows; ++i)
      head_softmax_.finish(sums, i, p_.dv, dst_ + ((std::int64_t{span.first_row} + i) * p_.n_head + head) * p_.dv);
  }

  void make_keys_and_values(Team& team, const std::byte* data, int n, int head) const noexcept {
    float* latents = latents_.of(team);
    float* keys = keys_.of(team);
    for (int t = 0; t < n; ++t) {
      const KvTile tile = KvCache::tile(cache_.k(), data, 0, t, 1);
      latent_kernels_.load(tile.values, tile.scales, static_cast<int>(row_), latents + t * row_);
      std::memcpy(keys + t * dk_ + p_.nope, latents + t * row_ + p_.kv_rank,
                  sizeof(float) * static_cast<std::size_t>(p_.n_rot));
    }
    multiply(team, key_up_, {latents, row_, n, head, 0, p_.nope, keys, dk_});
    multiply(team, value_up_, {latents, row_, n, head, p_.v_up_begin, p_.dv, values_.of(team), p_.dv});
  }

  struct Part {
    int head, row;  // kTile rows of the span from `row` on
    int first, n;   // cells
  };
  void add_block(Team& team, const AttnSpan& span, const Part& part, const Sums& all) const noexcept {
    const int rows = std::min(kTile, span.n_rows - part.row);
    float* q = line_.of(team);
    for (int i = 0; i < rows; ++i) {
      const std::int64_t at = (std::int64_t{span.first_row} + part.row + i) * p_.n_head + part.head;
      vec_.scale(q_ + at * dk_, p_.scale, dk_, q + i * dk_);
    }
    const auto tile = [&](const float* values, std::int64_t dim) {
      return KvTile{reinterpret_cast<const std::byte*>(values), nullptr, part.n, static_cast<int>(dim)};
    };
    float* scores = scores_.of(team);
    float_kernels_.qk({q, dk_, rows, tile(keys_.of(team), dk_), scores, kKvBlockTokens});
    const Sums sums{all.max + part.row, all.sum + part.row, all.acc + std::int64_t{part.row} * p_.dv};
    for (int i = 0; i < rows; ++i) {
      float* line = scores + i * kKvBlockTokens;
      const int seen = span.first_cell + part.row + i + 1 - part.first;
      if (seen < part.n) std::fill(line + std::max(seen, 0), line + part.n, kMinusInf);
      head_softmax_.add(sums, i, line, part.n);
    }
    float_kernels_.pv({scores, kKvBlockTokens, rows, tile(values_.of(team), p_.dv), sums.acc, p_.dv});
  }

  const MlaParams p_;
  const KernelTable& kernels_;
  const VecKernels& vec_;
  const KvKernels latent_kernels_, float_kernels_;
  const std::int64_t dk_, row_;  // elements of a key, of a cached row
  const float* q_;
  const float* latent_;
  const float* k_rot_;
  const KvCache cache_;
  const AttnSpan* spans_;
  float* dst_;
  const Projection absorb_, key_up_, value_up_;
  const OnlineSoftmax latent_softmax_, head_softmax_;
  std::int64_t pass_rows_ = 0, split_blocks_ = 0;
  float* queries_ = nullptr;  // [pass rows][n_head][row_]: queries in latent space, then what came out
  float* partial_ = nullptr;
  PerWorker<Segment> segments_;
  PerWorker<float> scores_, line_, acc_, latents_, keys_, values_, sums_;
  PerWorker<std::byte> act_, scratch_;
};

const char* declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  const auto& p = std::get<MlaParams>(node.params);
  if (!p.flash) return "flash attention is switched off";
  if (p.kv.dv != 0) return "the latent is kept twice";
  const KvKernels& kv = kernels.kv_of(p.kv.k_type);
  if (kv.qk == nullptr || kv.pv == nullptr) return "no kernel for this type of cache";
  for (const Slot& slot : node.slots) {
    if (const char* why = why_not_projection(graph, kernels, slot)) return why;
    if (slot.bias.valid() || slot.scale.valid()) return "a head's matrix with bias or scale";
    if (type_info(graph.at(slot.weight).type).rows_per_group > 1) return "a head's matrix of interleaved rows";
    if (slot.tapped) return "a head's matrix is tapped";
  }
  return nullptr;
}

}  // namespace

const OpImpl kMla{"latent_flash_attention", declines, bind_as<Mla>};

}  // namespace ggml::cpu
