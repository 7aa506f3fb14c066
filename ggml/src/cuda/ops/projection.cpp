#include "cuda/ops/projection.h"

#include "cuda/kernels/staged_products.h"
#include "cuda/ops/plane_kinds.h"

namespace ggml::cuda {
bool is_quantised(ActType act) noexcept {
  return act == ActType::q8_0 || act == ActType::q8_1 || act == ActType::q8_k;
}

std::size_t rounded_bytes(ActType act, int k, int rows) {
  Carver carver(nullptr);
  const RoundedRows measured(act, k, {nullptr, rows, rows}, carver);
  return carver.used();
}

RoundedRows::RoundedRows(ActType act, int k, const RowCount& rows, Carver& carver) : act_(act), k_(k), rows_(rows) {
  const std::int64_t n = static_cast<std::int64_t>(rows.capacity) * k;
  if (is_quantised(act)) {
    quantised_.q = carver.array<std::int8_t>(n);
    quantised_.d = carver.array<float>(n / kUnit);
    quantised_.s = carver.array<float>(n / 16);
  } else if (act != ActType::f32) {
    floats_ = carver.array<float>(n);
  }
}

RoundedRows::RoundedRows(const BindContext& context, TensorId x, ActType act, int k, const RowCount& rows,
                         Carver& carver) {
  for (const RoundedTensor& r : context.rounded_forms(x)) {
    if (r.act != act) continue;
    Carver there(context.data<std::byte>(r.rounded));
    *this = RoundedRows(act, k, rows, there);
    given_ = true;
    return;
  }
  *this = RoundedRows(act, k, rows, carver);
}

void RoundedRows::launch(const float* x, cudaStream_t stream) const {
  if (given_) return;
  if (is_quantised(act_)) {
    launch_quantise(act_, {x, quantised_, k_, rows_}, stream);
  } else if (act_ != ActType::f32) {
    launch_round(act_, x, floats_, k_, rows_, stream);
  }
}

Projection::Projection(const BindContext& context, const Slot& slot) : w_(context.weight(slot.weight)) {
  const Tensor& t = context.tensor(slot.weight);
  spec_ = plane_spec(t.type);
  float_kind_ = float_kind(spec_.stored);
  act_ = type_info(t.type).act;
  epilogue_.bias = context.data<const float>(slot.bias);
  epilogue_.scale = context.data<const float>(slot.scale);
  if (slot.bias.valid()) epilogue_.bias_stride = context.tensor(slot.bias).shape[0];
  if (slot.scale.valid()) epilogue_.scale_per_expert = context.tensor(slot.scale).shape.elements() > 1;
}

Projection Projection::part(std::int64_t first, std::int64_t n) const {
  Projection p = *this;
  p.w_.first += first;
  p.w_.n = n;
  if (p.epilogue_.bias != nullptr) p.epilogue_.bias += first;
  return p;
}

void Projection::follow(const Projection& before, int rows) {
  beside_ = rows > kMaxVectorRows && is_quantised() && before.is_quantised() && act_ == before.act_;
}

ProductArgs Projection::args(const RoundedRows& x, float* y, std::int64_t y_stride, const RowCount& rows) const {
  ProductArgs args;
  args.w = w_;
  args.x = x.quantised();
  args.y = y;
  args.y_stride = y_stride;
  args.rows = rows;
  args.epilogue = epilogue_;
  args.beside = beside_;
  return args;
}

void Projection::launch(const RoundedRows& x, const float* x_float, float* y, std::int64_t y_stride,
                        const RowCount& rows, cudaStream_t stream) const {
  ProductArgs product = args(x, y, y_stride, rows);
  const bool few = rows.capacity <= kMaxVectorRows;
  if (spec_.form == ScaleForm::none) {
    product.x_float = x.floats(x_float);
    return few ? launch_float_vector_product(float_kind_, product, stream)
               : launch_float_tile_product(float_kind_, product, stream);
  }
  if (few) return launch_one(product, stream);
  with_planes(spec_, [&]<int kBits, ScaleForm kForm, int kCenter>() {
    launch_tile_product<kBits, kForm, kCenter>(product, stream);
  });
}

void Projection::launch_one(const ProductArgs& product, cudaStream_t stream) const {
  RowProducts products;
  products.add(plane_kind(spec_), product);
  launch_few(products, stream);
}

void Projection::launch_experts(const RoundedRows& x, const float* x_float, float* y, const RowCount& pairs,
                                const ExpertIds& ids, const ExpertTiles* tiles, cudaStream_t stream) const {
  ProductArgs product = args(x, y, w_.n, pairs);
  product.experts = ids;
  if (spec_.form == ScaleForm::none) {
    product.x_float = x.floats(x_float);
    return launch_float_vector_product(float_kind_, product, stream);
  }
  if (tiles == nullptr) return launch_one(product, stream);
  with_planes(spec_, [&]<int kBits, ScaleForm kForm, int kCenter>() {
    launch_expert_tiles<kBits, kForm, kCenter>(product, *tiles, stream);
  });
}

void launch_few(const RowProducts& products, cudaStream_t stream) {
  bool single = true;
  for (int i = 0; i < products.n; ++i) {
    const ProductArgs& product = products.product[i];
    single = single && product.experts.ids == nullptr && product.rows.capacity == 1 && can_stage(product.w);
  }
  if (!single || is_too_large_to_stage(products)) return launch_row_products(products, stream);
  StagedProducts staged;
  staged.products = products;
  launch_staged_products(staged, stream);
}

const char* why_not_projection(const Graph& graph, const Slot& slot) {
  const Tensor& w = graph.at(slot.weight);
  if (w.role == TensorRole::activation) return "a matrix that is an activation";
  if (plane_spec(w.type).form != ScaleForm::none && w.shape[0] % kUnit != 0) return "rows that are no multiple of 32";
  if (!slot.adapters.empty()) return "a slot has adapters";
  for (const TensorId id : {slot.bias, slot.scale}) {
    if (id.valid() && graph.at(id).type != DType::f32) return "a bias or scale that is not F32";
  }
  return nullptr;
}

}  // namespace ggml::cuda
