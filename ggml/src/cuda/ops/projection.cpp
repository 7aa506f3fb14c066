#include "cuda/ops/projection.h"

#include "cuda/ops/plane_kinds.h"

namespace ggml::cuda {
namespace {

bool is_quantised(ActType act) {
  return act == ActType::q8_0 || act == ActType::q8_1 || act == ActType::q8_k;
}

}  // namespace

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

void RoundedRows::launch(const float* x, cudaStream_t stream) const {
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

void Projection::launch(const RoundedRows& x, const float* x_float, float* y, std::int64_t y_stride,
                        const RowCount& rows, cudaStream_t stream) const {
  ProductArgs args;
  args.w = w_;
  args.x = x.quantised();
  args.y = y;
  args.y_stride = y_stride;
  args.rows = rows;
  args.epilogue = epilogue_;
  const bool few = rows.capacity <= kMaxVectorRows;
  if (spec_.form == ScaleForm::none) {
    args.x_float = x.floats(x_float);
    return few ? launch_float_vector_product(float_kind_, args, stream)
               : launch_float_tile_product(float_kind_, args, stream);
  }
  with_planes(spec_, [&]<int kBits, ScaleForm kForm, int kCenter>() {
    few ? launch_vector_product<kBits, kForm, kCenter>(args, stream)
        : launch_tile_product<kBits, kForm, kCenter>(args, stream);
  });
}

void Projection::launch_experts(const RoundedRows& x, const float* x_float, float* y, const RowCount& pairs,
                                const ExpertIds& ids, const ExpertTiles* tiles, cudaStream_t stream) const {
  ProductArgs args;
  args.w = w_;
  args.x = x.quantised();
  args.y = y;
  args.y_stride = w_.n;
  args.rows = pairs;
  args.experts = ids;
  args.epilogue = epilogue_;
  if (spec_.form == ScaleForm::none) {
    args.x_float = x.floats(x_float);
    return launch_float_vector_product(float_kind_, args, stream);
  }
  with_planes(spec_, [&]<int kBits, ScaleForm kForm, int kCenter>() {
    tiles == nullptr ? launch_vector_product<kBits, kForm, kCenter>(args, stream)
                     : launch_expert_tiles<kBits, kForm, kCenter>(args, *tiles, stream);
  });
}

const char* why_not_projection(const Graph& graph, const Slot& slot) {
  const Tensor& w = graph.at(slot.weight);
  if (w.role == TensorRole::activation) return "a matrix that is an activation";
  if (plane_spec(w.type).form != ScaleForm::none && w.shape[0] % kUnit != 0) return "rows that are no multiple of 32";
  for (const TensorId id : {slot.bias, slot.scale}) {
    if (id.valid() && graph.at(id).type != DType::f32) return "a bias or scale that is not F32";
  }
  return nullptr;
}

}  // namespace ggml::cuda
