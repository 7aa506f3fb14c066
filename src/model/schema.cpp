#include "model/schema.h"

#include <charconv>
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

/// The symbols of latent attention, recurrent layers and encoders.
DimText evaluate_special(Dim dim, const Hparams& h, const LayerHparams& layer) {
  const MlaHparams& mla = h.mla;
  const DeltaNetHparams& net = h.delta_net;
  const std::int64_t nope = layer.dk - layer.n_rot;
  switch (dim) {
    case Dim::q_rank:
      return {mla.q_rank, "q_lora_rank"};
    case Dim::kv_rank:
      return {mla.kv_rank, "kv_lora_rank"};
    case Dim::kv_rank_rot:
      return {std::int64_t{mla.kv_rank} + layer.n_rot, "kv_lora_rank + rope.dimension_count"};
    case Dim::nope:
      return {nope, "key_length - rope.dimension_count"};
    case Dim::kv_b_rows:
      return {layer.n_head * (nope + layer.dv), "head_count * (key_length - rope.dimension_count + value_length)"};
    case Dim::kv_rank_rows:
      return {std::int64_t{layer.n_head} * mla.kv_rank, "head_count * kv_lora_rank"};
    case Dim::conv_kernel:
      return {net.conv_kernel, "ssm.conv_kernel"};
    case Dim::conv_channels:
      return {net.conv_channels(), "2 * ssm.state_size * ssm.group_count + ssm.inner_size"};
    case Dim::ssm_inner:
      return {net.inner(), "ssm.inner_size"};
    case Dim::ssm_in_rows:
      return {std::int64_t{net.conv_channels()} + net.inner(),
              "2 * ssm.state_size * ssm.group_count + 2 * ssm.inner_size"};
    case Dim::ssm_heads:
      return {net.n_head_v, "ssm.time_step_rank"};
    case Dim::ssm_heads2:
      return {std::int64_t{2} * net.n_head_v, "2 * ssm.time_step_rank"};
    case Dim::ssm_state:
      return {net.head_dim, "ssm.state_size"};
    case Dim::context:
      return {h.n_ctx_train, "context_length"};
    case Dim::token_types:
      return {h.n_token_types, "token_type_count"};
    default:
      return {1, "1"};
  }
}

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
    case Dim::dv:
      return {layer.dv, "value_length"};
    case Dim::heads:
      return {layer.n_head, "head_count"};
    case Dim::q_rows2:
      return {2 * q, "2 * head_count * key_length"};
    case Dim::half_rot:
      return {layer.n_rot / 2, "rope.dimension_count / 2"};
    case Dim::ff:
      return {layer.n_ff, "feed_forward_length"};
    case Dim::ff2:
      return {std::int64_t{2} * layer.n_ff, "2 * feed_forward_length"};
    case Dim::experts:
      return {h.experts.count, "expert_count"};
    case Dim::expert_ff:
      return {h.experts.n_ff, "expert feed-forward length"};
    case Dim::expert_ff2:
      return {std::int64_t{2} * h.experts.n_ff, "2 * expert feed-forward length"};
    case Dim::shared_ff:
      return {h.experts.n_ff_shared, "shared expert's feed-forward length"};
    default:
      return evaluate_special(dim, h, layer);
  }
  return {1, "1"};
}

/// N of "blk.N.name"; -1 for other names.
int layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return error == std::errc{} && end != name.data() + name.size() && *end == '.' ? layer : -1;
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

  /// `required`: whether its absence is a problem.
  void match(const TensorRow& row, int layer_index, bool required) {
    static const LayerHparams kNoLayer;
    const bool is_layer = layer_index >= 0;
    const LayerHparams& layer = is_layer            ? h_.layers[static_cast<std::size_t>(layer_index)]
                                : h_.layers.empty() ? kNoLayer
                                                    : h_.layers.front();
    const std::string base = (is_layer ? strf("blk.%d.", layer_index) : std::string()) + std::string(row.name);
    const std::string name = base + std::string(row.suffix);
    const TensorInfo* info = find(name);
    const Expected expected = expected_shape(row.shape, h_, layer);
    if (info == nullptr) {
      if (required)
        result.problems.push_back(
            strf("%s: missing; %s expected (%s)", name.c_str(), expected.shape.text().c_str(), expected.text.c_str()));
      return;
    }
    const Expected flat = expected_shape(row.flat_shape, h_, layer);
    const bool is_flat = flat.dims > 0 && info->shape == flat.shape;
    check(*info, is_flat ? flat : expected, expected.dims > 1);
    result.found.push_back({info, row.role, layer_index, TensorMatch::Part::weight});
    if (row.suffix == ".weight") match_parts(row, base, layer_index, expected);
  }

  /// Biases and output scales.
  void match_parts(const TensorRow& row, const std::string& base, int layer_index, const Expected& weight) {
    const bool stack = weight.dims == 3;
    if (weight.dims > 1) {
      if (const TensorInfo* scale = find(base + ".scale")) {
        check(*scale, {Shape(stack ? weight.shape[2] : 1), stack ? "expert_count" : "one factor", 1}, false);
        result.found.push_back({scale, row.role, layer_index, TensorMatch::Part::scale});
      }
    }
    if (row.bias == Bias::none) return;
    const Shape shape = stack ? Shape(weight.shape[1], weight.shape[2]) : Shape(weight.shape[weight.dims - 1]);
    const TensorInfo* bias = find(base + ".bias");
    if (bias != nullptr) {
      check(*bias, {shape, "rows of " + base + ".weight", stack ? 2 : 1}, false);
      result.found.push_back({bias, row.role, layer_index, TensorMatch::Part::bias});
    } else if (row.bias == Bias::required) {
      result.problems.push_back(
          strf("%s.bias: missing; %s expected (rows of %s.weight)", base.c_str(), shape.text().c_str(), base.c_str()));
    }
  }

  void collect_unused() {
    for (const TensorInfo& info : file_.tensors()) {
      if (claimed_.contains(&info)) continue;
      if (layer_of(info.name) >= h_.n_layer && layer_of(info.name) < h_.n_layer_all) {
        ++result.n_skipped;
        result.skipped_bytes += info.bytes;
      } else {
        result.unused.push_back(info.name);
      }
    }
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

bool applies(const TensorRow& row, const LayerHparams& layer) {
  switch (row.when) {
    case When::always:
      break;
    case When::dense:
      return !layer.moe;
    case When::moe:
      return layer.moe;
    case When::attention:
      return !layer.recurrent;
    case When::recurrent:
      return layer.recurrent;
  }
  return true;
}

}  // namespace

SchemaMatch match_schema(const ggml::gguf::File& file, std::span<const TensorRow> rows, const Hparams& hparams) {
  Matcher matcher(file, hparams);
  const auto run = [&](Scope scope, int layer) {
    const std::string prefix = layer >= 0 ? strf("blk.%d.", layer) : std::string();
    std::array<bool, kRoleCount> present{};
    for (const TensorRow& row : rows) {
      if (row.scope != scope || (layer >= 0 && !applies(row, hparams.layers[static_cast<std::size_t>(layer)])))
        continue;
      const auto found = [&](Role role) { return role != Role::count && present[static_cast<std::size_t>(role)]; };
      if (found(row.instead) || (row.with != Role::count && !found(row.with))) continue;
      bool& here = present[static_cast<std::size_t>(row.role)];
      here = here || file.find(prefix + std::string(row.name) + std::string(row.suffix)) != nullptr;
      matcher.match(row, layer, row.need == Need::required && !found(row.unless));
    }
  };
  run(Scope::global, -1);
  for (int layer = 0; layer < hparams.n_layer; ++layer) run(Scope::layer, layer);
  matcher.collect_unused();
  return std::move(matcher.result);
}

}  // namespace llama
