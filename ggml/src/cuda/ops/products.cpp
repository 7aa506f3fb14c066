#include <algorithm>
#include <array>

#include "cuda/kernels/selection.h"
#include "cuda/ops/plane_kinds.h"
#include "cuda/ops/projection.h"
#include "cuda/ops/registry.h"

namespace ggml::cuda {
namespace {

/// y = scale * (W x) + bias.
class Product : public BoundOp {
 public:
  Product(const BindContext& c, const Slot& slot, TensorId x, TensorId y, Carver& carver)
      : projection_(c, slot),
        x_(c.data<const float>(x)),
        y_(c.data<float>(y)),
        rows_(c.rows(x, projection_.k())),
        input_(c, x, projection_.act(), projection_.k(), rows_, carver) {}
  void launch(cudaStream_t stream) const override {
    input_.launch(x_, stream);
    projection_.launch(input_, x_, y_, projection_.n(), rows_, stream);
  }

 private:
  Projection projection_;
  const float* x_;
  float* y_;
  RowCount rows_;
  RoundedRows input_;
};

class Linear final : public Product {
 public:
  Linear(const BindContext& c, const Node& node, Carver& carver)
      : Product(c, node.slots[0], node.src[0], node.dst[0], carver) {}
};

const char* linear_declines(const Graph& graph, const Node& node) {
  return why_not_projection(graph, node.slots[0]);
}

/// Query, key and value of a layer: the input is rounded once per form; then clamp and norms.
class Qkv final : public BoundOp {
 public:
  Qkv(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<QkvParams>(node.params)), x_(c.data<const float>(node.src[0])) {
    const int k = static_cast<int>(c.tensor(node.src[0]).shape[0]);
    rows_ = c.rows(node.src[0], k);
    const std::array<std::int64_t, 3> widths{std::int64_t{p_.dk} * p_.n_head, std::int64_t{p_.dk} * p_.n_head_kv,
                                             std::int64_t{p_.dv} * p_.n_head_kv};
    std::int64_t first = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      Part& part = parts_[i];
      part.y = c.data<float>(node.dst[i]);
      part.width = widths[i];
      part.heads = c.rows(node.dst[i], i == 2 ? p_.dv : p_.dk);
      const Projection whole(c, node.slots[p_.fused ? 0 : i]);
      part.projection = p_.fused ? whole.part(first, widths[i]) : whole;
      if (i > 0) part.projection.follow(parts_[i - 1].projection, rows_.capacity);
      first += widths[i];
      part.input = input_for(c, node.src[0], part.projection.act(), k, carver);
      if (p_.has_qk_norm && i < 2) part.norm = norm_args(c, node.slots[(p_.fused ? 1 : 3) + i], i);
    }
  }

  void launch(cudaStream_t stream) const override {
    for (std::size_t i = 0; i < n_inputs_; ++i) inputs_[i].launch(x_, stream);
    launch_products(stream);
    for (const Part& part : parts_) {
      if (p_.clamp > 0) launch_clamp(p_.clamp, part.y, part.width, rows_, stream);
      if (part.norm.n > 0) launch_norm(part.norm, stream);
    }
  }

 private:
  struct Part {
    Projection projection;
    std::size_t input = 0;
    float* y = nullptr;
    std::int64_t width = 0;
    RowCount heads;
    NormArgs norm;
  };

  void launch_products(cudaStream_t stream) const {
    const bool together =
        rows_.capacity <= kMaxVectorRows &&
        std::all_of(parts_.begin(), parts_.end(), [](const auto& p) { return p.projection.is_quantised(); });
    RowProducts products;
    for (const Part& part : parts_) {
      const RoundedRows& input = inputs_[part.input];
      if (together) {
        products.add(plane_kind(part.projection.spec()), part.projection.args(input, part.y, part.width, rows_));
      } else {
        part.projection.launch(input, x_, part.y, part.width, rows_, stream);
      }
    }
    if (together) launch_few(products, stream);
  }

  std::size_t input_for(const BindContext& c, TensorId x, ActType act, int k, Carver& carver) {
    for (std::size_t i = 0; i < n_inputs_; ++i) {
      if (inputs_[i].act() == act) return i;
    }
    inputs_[n_inputs_] = RoundedRows(c, x, act, k, rows_, carver);
    return n_inputs_++;
  }

  NormArgs norm_args(const BindContext& c, const Slot& slot, std::size_t i) const {
    NormArgs a;
    a.x = a.y = parts_[i].y;
    a.weight = c.data<const float>(slot.weight);
    a.bias = c.data<const float>(slot.bias);
    a.n = p_.norm_full_row ? static_cast<int>(parts_[i].width) : p_.dk;
    const bool per_head = !p_.norm_full_row && c.tensor(slot.weight).shape[1] > 1;
    a.heads = per_head ? static_cast<int>(parts_[i].width / p_.dk) : 1;
    a.eps = p_.norm_eps;
    a.rows = p_.norm_full_row ? rows_ : parts_[i].heads;
    return a;
  }

  QkvParams p_;
  const float* x_;
  RowCount rows_;
  std::array<Part, 3> parts_;
  std::array<RoundedRows, 3> inputs_;
  std::size_t n_inputs_ = 0;
};

const char* qkv_declines(const Graph& graph, const Node& node) {
  const auto& p = std::get<QkvParams>(node.params);
  const std::size_t n_matrices = p.fused ? 1 : 3;
  for (std::size_t i = 0; i < n_matrices; ++i) {
    if (const char* why = why_not_projection(graph, node.slots[i])) return why;
  }
  for (std::size_t i = n_matrices; i < node.slots.size(); ++i) {
    if (graph.at(node.slots[i].weight).type != DType::f32) return "a norm weight that is not F32";
    if (node.slots[i].scale.valid()) return "a norm of q or k with a scale";
  }
  return nullptr;
}

/// The primitive: activations come rounded as the decomposition says, so rounding them again changes nothing but the
/// form. That holds for every form: the codes of rounded values are their codes.
class MulMat final : public Product {
 public:
  MulMat(const BindContext& c, const Node& node, Carver& carver)
      : Product(c, Slot{node.src[0], {}, {}, false}, node.src[1], node.dst[0], carver) {}
};

const char* mul_mat_declines(const Graph& graph, const Node& node) {
  return why_not_projection(graph, Slot{node.src[0], {}, {}, false});
}

int range_end(int end, std::int64_t n_expert) {
  return end == 0 ? static_cast<int>(n_expert) : end;
}

class MulMatId final : public BoundOp {
 public:
  MulMatId(const BindContext& c, const Node& node, Carver& carver)
      : projection_(c, Slot{node.src[0], {}, {}, false}),
        x_(c.data<const float>(node.src[1])),
        y_(c.data<float>(node.dst[0])),
        pairs_(c.rows(node.src[2], 1)),
        x_rows_(c.rows(node.src[1], projection_.k())),
        input_(projection_.act(), projection_.k(), x_rows_, carver) {
    const auto& p = std::get<MulMatIdParams>(node.params);
    ids_.ids = c.data<const std::int32_t>(node.src[2]);
    ids_.n_used = static_cast<int>(c.tensor(node.src[2]).shape[0]);
    ids_.shared_input = c.tensor(node.src[1]).shape[1] == 1;
    ids_.begin = p.expert_begin;
    ids_.end = range_end(p.expert_end, c.tensor(node.src[0]).shape[2]);
  }
  void launch(cudaStream_t stream) const override {
    input_.launch(x_, stream);
    projection_.launch_experts(input_, x_, y_, pairs_, ids_, nullptr, stream);
  }

 private:
  Projection projection_;
  const float* x_;
  float* y_;
  RowCount pairs_, x_rows_;
  RoundedRows input_;
  ExpertIds ids_;
};

/// Rows of a table: a weight of any type, or an activation.
class GetRows final : public BoundOp {
 public:
  GetRows(const BindContext& c, TensorId table, TensorId ids, TensorId dst) {
    const Tensor& t = c.tensor(table);
    const bool is_weight =
        t.role == TensorRole::weight || (t.role == TensorRole::view && c.tensor(t.base).role == TensorRole::weight);
    spec_ = plane_spec(t.type);
    kind_ = float_kind(spec_.stored);
    a_.k = static_cast<int>(t.shape[0]);
    a_.table_rows = t.shape[1];
    if (is_weight) {
      a_.table = c.weight(table);
      a_.float_table =
          spec_.form == ScaleForm::none && a_.table.codes != nullptr
              ? a_.table.codes + static_cast<std::size_t>(a_.table.first) * row_bytes(spec_.stored, t.shape[0])
              : nullptr;
    } else {
      a_.float_table = c.data<const float>(table);
      a_.table_live = c.rows(table, a_.k);
    }
    a_.ids = c.data<const std::int32_t>(ids);
    a_.y = c.data<float>(dst);
    a_.rows = c.rows(dst, a_.k);
  }
  GetRows(const BindContext& c, const Node& node, Carver&) : GetRows(c, node.src[0], node.src[1], node.dst[0]) {}

  void launch(cudaStream_t stream) const override {
    if (spec_.form == ScaleForm::none) return launch_get_float_rows(kind_, a_, stream);
    with_planes(spec_,
                [&]<int kBits, ScaleForm kForm, int kCenter>() { launch_get_rows<kBits, kForm, kCenter>(a_, stream); });
  }
  [[nodiscard]] const GetRowsArgs& args() const { return a_; }

 private:
  PlaneSpec spec_;
  FloatKind kind_ = FloatKind::f32;
  GetRowsArgs a_;
};

const char* get_rows_declines(const Graph& graph, const Node& node) {
  const Tensor& t = graph.at(node.src[0]);
  return plane_spec(t.type).form != ScaleForm::none && t.shape[0] % kUnit != 0 ? "rows that are no multiple of 32"
                                                                               : nullptr;
}

/// Token ids to scaled rows.
class Embed final : public BoundOp {
 public:
  Embed(const BindContext& c, const Node& node, Carver&)
      : rows_(c, node.slots[0].weight, node.src[0], node.dst[0]), scale_(std::get<EmbedParams>(node.params).scale) {}
  void launch(cudaStream_t stream) const override {
    rows_.launch(stream);
    if (scale_ == 1.0f) return;
    const GetRowsArgs& a = rows_.args();
    launch_unary({UnaryKind::scale, Activation::none, scale_}, a.y, a.y, a.k, a.rows, stream);
  }

 private:
  GetRows rows_;
  float scale_;
};

const char* embed_declines(const Graph& graph, const Node& node) {
  const Slot& slot = node.slots[0];
  if (slot.bias.valid() || slot.scale.valid()) return "a table with a bias or scale";
  return why_not_projection(graph, slot);
}

}  // namespace

const OpImpl kLinear{"linear", linear_declines, bind_as<Linear>};
const OpImpl kQkv{"qkv", qkv_declines, bind_as<Qkv>};
const OpImpl kMulMat{"mul_mat", mul_mat_declines, bind_as<MulMat>};
const OpImpl kMulMatId{"mul_mat_id", mul_mat_declines, bind_as<MulMatId>};
const OpImpl kGetRows{"get_rows", get_rows_declines, bind_as<GetRows>};
const OpImpl kEmbed{"embed", embed_declines, bind_as<Embed>};

}  // namespace ggml::cuda
