#include <algorithm>
#include <cmath>
#include <cstring>

#include "ggml/hadamard.h"
#include "ggml/kv_rows.h"
#include "ops.h"

namespace ggml::reference {

namespace {

// The plane of values and of scales of one head in one block, for keys or for values.
struct HeadPlanes {
  DType type;
  int dim;
  std::byte* values;
  std::byte* scales;
};

HeadPlanes key_planes(const KvLayout& kv, std::byte* block, int head) {
  const auto h = static_cast<std::size_t>(head);
  return {kv.k_type, kv.dk, block + kv.k_values() + h * KvLayout::head_value_bytes(kv.k_type, kv.dk),
          block + kv.k_scales() + h * KvLayout::head_scale_bytes(kv.k_type, kv.dk)};
}

HeadPlanes value_planes(const KvLayout& kv, std::byte* block, int head) {
  const auto h = static_cast<std::size_t>(head);
  return {kv.v_type, kv.dv, block + kv.v_values() + h * KvLayout::head_value_bytes(kv.v_type, kv.dv),
          block + kv.v_scales() + h * KvLayout::head_scale_bytes(kv.v_type, kv.dv)};
}

void encode(const HeadPlanes& planes, int token, const double* x) {
  std::vector<float> floats(static_cast<std::size_t>(planes.dim));
  std::transform(x, x + planes.dim, floats.begin(), [](double v) { return static_cast<float>(v); });
  const KvForm form = kv_form(planes.type);
  const auto row = static_cast<std::size_t>(token);
  encode_kv_row(planes.type, floats.data(), planes.dim, planes.values + row * form.value_bytes(planes.dim),
                planes.scales + row * form.scale_bytes(planes.dim));
}

std::vector<double> decode(const HeadPlanes& planes, int token) {
  std::vector<float> floats(static_cast<std::size_t>(planes.dim));
  const KvForm form = kv_form(planes.type);
  const auto row = static_cast<std::size_t>(token);
  decode_kv_row(planes.type, planes.values + row * form.value_bytes(planes.dim),
                planes.scales + row * form.scale_bytes(planes.dim), 0, planes.dim, floats.data());
  return {floats.begin(), floats.end()};
}

// The block that holds a cell of a span's sequence; null where the sequence has none (any more).
std::byte* block_of(std::byte* pool, const KvLayout& kv, const std::int32_t* table, const AttnSpan& span, int cell) {
  const int index = cell / kKvBlockTokens - span.first_block;
  if (index < 0) return nullptr;
  const std::int32_t block = table[span.table_offset + index];
  return block < 0 ? nullptr : pool + static_cast<std::size_t>(block) * kv.block_bytes();
}

bool visible(const AttentionParams& p, int query, int key) {
  if (p.causal && key > query) return false;
  switch (p.window_kind) {
    case WindowKind::none:
      return true;
    case WindowKind::standard:
      return query - key < p.window;
    case WindowKind::chunked:
      return key >= query / p.window * p.window;
    case WindowKind::symmetric:
      return std::abs(query - key) <= p.window / 2;
  }
  return true;
}

double alibi_slope(const AttentionParams& p, int head) {
  if (p.max_alibi_bias <= 0) return 0;
  int n2 = 1;
  while (2 * n2 <= p.n_head) n2 *= 2;
  const double bias = p.max_alibi_bias;
  return head < n2 ? std::pow(2.0, -bias / n2 * (head + 1)) : std::pow(2.0, -bias / 2 / n2 * (2 * (head - n2) + 1));
}

// The cells of one span, decoded per key head.
struct Cells {
  std::vector<int> numbers;
  std::vector<std::vector<double>> k, v;  // [head_kv * n + i]
};

Cells decode_cells(std::byte* pool, const AttentionParams& p, const std::int32_t* table, const AttnSpan& span) {
  Cells cells;
  for (int cell = 0; cell < span.first_cell + span.n_rows; ++cell)
    if (block_of(pool, p.kv, table, span, cell) != nullptr) cells.numbers.push_back(cell);
  for (int head = 0; head < p.kv.n_head_kv; ++head)
    for (int cell : cells.numbers) {
      std::byte* block = block_of(pool, p.kv, table, span, cell);
      cells.k.push_back(decode(key_planes(p.kv, block, head), cell % kKvBlockTokens));
      cells.v.push_back(p.v_of_k > 0 ? cells.k.back() : decode(value_planes(p.kv, block, head), cell % kKvBlockTokens));
    }
  return cells;
}

struct Query {
  int cell = 0;
  int head = 0;
  const double* q = nullptr;
  const double* sink = nullptr;
};

void attend(const AttentionParams& p, const Cells& cells, const Query& query, double* out) {
  const std::size_t n = cells.numbers.size();
  const std::size_t first = static_cast<std::size_t>(query.head / (p.n_head / p.kv.n_head_kv)) * n;
  std::vector<double> scores(n, -INFINITY);
  double max = -INFINITY;
  const double slope = alibi_slope(p, query.head);
  for (std::size_t i = 0; i < n; ++i) {
    if (!visible(p, query.cell, cells.numbers[i])) continue;
    double s = 0;
    for (int d = 0; d < p.kv.dk; ++d) s += query.q[d] * cells.k[first + i][static_cast<std::size_t>(d)];
    s *= p.scale;
    if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
    scores[i] = s - slope * std::abs(query.cell - cells.numbers[i]);
    max = std::max(max, scores[i]);
  }
  const int dv = p.v_of_k > 0 ? p.v_of_k : p.kv.dv;
  std::fill(out, out + dv, 0.0);
  if (max == -INFINITY) return;
  if (query.sink != nullptr) max = std::max(max, *query.sink);
  double sum = query.sink != nullptr ? std::exp(*query.sink - max) : 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    const double weight = std::exp(scores[i] - max);
    sum += weight;
    for (int d = 0; d < dv; ++d) out[d] += weight * cells.v[first + i][static_cast<std::size_t>(d)];
  }
  for (int d = 0; d < dv; ++d) out[d] /= sum;
}

}  // namespace

void kv_append(Memory& m, const Node& node) {
  const KvLayout& kv = std::get<KvAppendParams>(node.params).kv;
  const double* k = m.read(node.src[0]);
  const double* v = m.read(node.src[1]);
  std::byte* pool = m.raw(node.src[2]);
  const auto* spans = reinterpret_cast<const AttnSpan*>(m.raw(node.src[3]));
  const auto* table = reinterpret_cast<const std::int32_t*>(m.raw(node.src[4]));
  for (int s = 0; s < m.counts().n_spans; ++s)
    for (int i = 0; i < spans[s].n_rows; ++i) {
      const int cell = spans[s].first_cell + i;
      const std::int64_t row = static_cast<std::int64_t>(spans[s].first_row + i) * kv.n_head_kv;
      std::byte* block = block_of(pool, kv, table, spans[s], cell);
      if (block == nullptr) continue;
      for (int head = 0; head < kv.n_head_kv; ++head) {
        encode(key_planes(kv, block, head), cell % kKvBlockTokens, k + (row + head) * kv.dk);
        if (kv.dv > 0) encode(value_planes(kv, block, head), cell % kKvBlockTokens, v + (row + head) * kv.dv);
      }
    }
}

void attn_dense(Memory& m, const Node& node) {
  const auto& p = std::get<AttentionParams>(node.params);
  const double* q = m.read(node.src[0]);
  std::byte* pool = m.raw(node.src[1]);
  const auto* spans = reinterpret_cast<const AttnSpan*>(m.raw(node.src[2]));
  const auto* table = reinterpret_cast<const std::int32_t*>(m.raw(node.src[3]));
  const double* sinks = p.has_sinks ? m.read(node.slots[0].weight) : nullptr;
  double* y = m.write(node.dst[0]);
  for (int s = 0; s < m.counts().n_spans; ++s) {
    const Cells cells = decode_cells(pool, p, table, spans[s]);
    for (int i = 0; i < spans[s].n_rows; ++i)
      for (int head = 0; head < p.n_head; ++head) {
        const std::int64_t at = static_cast<std::int64_t>(spans[s].first_row + i) * p.n_head + head;
        const Query query{spans[s].first_cell + i, head, q + at * p.kv.dk, sinks == nullptr ? nullptr : sinks + head};
        attend(p, cells, query, y + at * (p.v_of_k > 0 ? p.v_of_k : p.kv.dv));
      }
  }
}

void hadamard(Memory& m, const Node& node) {
  const std::int64_t n = m.at(node.src[0]).shape[0];
  const std::int64_t live = m.live(node.src[0]);
  const double* x = m.read(node.src[0]);
  double* y = m.write(node.dst[0]);
  std::copy(x, x + live, y);
  for (std::int64_t at = 0; at < live; at += n) ggml::hadamard(y + at, n);
}

}  // namespace ggml::reference
