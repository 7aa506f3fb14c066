#include "model/schema.h"

#include <unordered_set>

#include "ggml/log.h"
#include "ggml/quant.h"

namespace llama {

using ggml::Shape;
using ggml::strf;
using ggml::gguf::TensorInfo;

namespace {

struct DimText {
  std::int64_t value;
  const char* name;
};

DimText evaluate(Dim dim, const Hparams& h, const LayerHparams& layer) {
  const std::int64_t q = std::int64_t{layer.n_head} * layer.dk;
  const std::int64_t k = std::int64_t{layer.n_head_kv} * layer.dk;
  const std::int64_t v = std::int64_t{layer.n_head_kv} * layer.dv;
  switch (dim) {
    case Dim::none:
      break;
    case Dim::embd:
      return {h.n_embd, "embedding_length"};
    case Dim::vocab:
      return {h.n_vocab, "vocabulary size"};
    case Dim::q_rows:
      return {q, "head_count * key_length"};
    case Dim::k_rows:
      return {k, "head_count_kv * key_length"};
    case Dim::v_rows:
      return {v, "head_count_kv * value_length"};
    case Dim::qkv_rows:
      return {q + k + v, "rows of q, k and v"};
    case Dim::attn_out:
      return {std::int64_t{layer.n_head} * layer.dv, "head_count * value_length"};
    case Dim::dk:
      return {layer.dk, "key_length"};
    case Dim::half_rot:
      return {layer.n_rot / 2, "rope.dimension_count / 2"};
    case Dim::ff:
      return {layer.n_ff, "feed_forward_length"};
    case Dim::experts:
      return {h.experts.count, "expert_count"};
    case Dim::expert_ff:
      return {h.experts.n_ff, "expert feed-forward length"};
    case Dim::expert_ff2:
      return {std::int64_t{2} * h.experts.n_ff, "2 * expert feed-forward length"};
  }
  return {1, "1"};
}

/// A shape to compare with, and how messages explain it.
struct Expected {
  Shape shape;
  std::string text;
  int dims = 0;
};

Expected expected_shape(std::span<const Dim> dims, const Hparams& h, const LayerHparams& layer) {
  Expected expected;
  for (const Dim dim : dims) {
    if (dim == Dim::none) break;
    const DimText d = evaluate(dim, h, layer);
    expected.shape[expected.dims] = d.value;
    if (expected.dims > 0) expected.text += " x ";
    expected.text += d.name;
    ++expected.dims;
  }
  return expected;
}

class Matcher {
 public:
  Matcher(const ggml::gguf::File& file, const Hparams& hparams) : file_(file), h_(hparams) {}

  void match(const TensorRow& row, int layer_index) {
    static const LayerHparams kNoLayer;
    const bool is_layer = layer_index >= 0;
    const LayerHparams& layer = is_layer            ? h_.layers[static_cast<std::size_t>(layer_index)]
                                : h_.layers.empty() ? kNoLayer
                                                    : h_.layers.front();
    const std::string base = (is_layer ? strf("blk.%d.", layer_index) : std::string()) + std::string(row.name);
    const TensorInfo* info = find(base + ".weight");
    const Expected expected = expected_shape(row.shape, h_, layer);
    if (info == nullptr) {
      if (row.need == Need::required)
        result.problems.push_back(strf("%s.weight: missing; %s expected (%s)", base.c_str(),
                                       expected.shape.text().c_str(), expected.text.c_str()));
      return;
    }
    check(*info, expected, expected.dims > 1);
    result.found.push_back({info, row.role, layer_index, TensorMatch::Part::weight});
    if (expected.dims > 1) match_parts(row, base, layer_index, expected);
  }

  /// Biases and output scales of a matrix.
  void match_parts(const TensorRow& row, const std::string& base, int layer_index, const Expected& matrix) {
    const bool stack = matrix.dims == 3;
    if (const TensorInfo* scale = find(base + ".scale")) {
      check(*scale, {Shape(stack ? matrix.shape[2] : 1), stack ? "expert_count" : "one factor", 1}, false);
      result.found.push_back({scale, row.role, layer_index, TensorMatch::Part::scale});
    }
    if (row.bias == Bias::none) return;
    if (const TensorInfo* bias = find(base + ".bias")) {
      const Shape shape = stack ? Shape(matrix.shape[1], matrix.shape[2]) : Shape(matrix.shape[1]);
      check(*bias, {shape, "rows of " + base + ".weight", stack ? 2 : 1}, false);
      result.found.push_back({bias, row.role, layer_index, TensorMatch::Part::bias});
    }
  }

  void collect_unused() {
    for (const TensorInfo& info : file_.tensors())
      if (!claimed_.contains(&info)) result.unused.push_back(info.name);
  }

  SchemaMatch result;

 private:
  const TensorInfo* find(const std::string& name) {
    const TensorInfo* info = file_.find(name);
    if (info != nullptr) claimed_.insert(info);
    return info;
  }

  void check(const TensorInfo& info, const Expected& expected, bool matrix) {
    if (info.shape != expected.shape)
      result.problems.push_back(strf("%s: %s expected (%s), file has %s", info.name.c_str(),
                                     expected.shape.text().c_str(), expected.text.c_str(), info.shape.text().c_str()));
    const std::string type(ggml::type_info(info.type).name);
    if (!matrix && info.type != ggml::DType::f32)
      result.problems.push_back(strf("%s: type F32 expected, file has %s", info.name.c_str(), type.c_str()));
    if (matrix && !ggml::is_weight_type(info.type))
      result.problems.push_back(strf("%s: a weight type expected, file has %s", info.name.c_str(), type.c_str()));
  }

  const ggml::gguf::File& file_;
  const Hparams& h_;
  std::unordered_set<const TensorInfo*> claimed_;
};

bool applies(const TensorRow& row, const Hparams& hparams) {
  if (row.when == When::moe) return hparams.has_experts();
  if (row.when == When::dense) return !hparams.has_experts();
  return true;
}

}  // namespace

SchemaMatch match_schema(const ggml::gguf::File& file, std::span<const TensorRow> rows, const Hparams& hparams) {
  Matcher matcher(file, hparams);
  const auto run = [&](Scope scope, int layer) {
    const std::string prefix = layer >= 0 ? strf("blk.%d.", layer) : std::string();
    std::array<bool, kRoleCount> present{};
    for (const TensorRow& row : rows) {
      if (row.scope != scope || !applies(row, hparams)) continue;
      if (row.instead != Role::count && present[static_cast<std::size_t>(row.instead)]) continue;
      present[static_cast<std::size_t>(row.role)] = file.find(prefix + std::string(row.name) + ".weight") != nullptr;
      matcher.match(row, layer);
    }
  };
  run(Scope::global, -1);
  for (int layer = 0; layer < hparams.n_layer; ++layer) run(Scope::layer, layer);
  matcher.collect_unused();
  return std::move(matcher.result);
}

}  // namespace llama
