#include "cost.h"
#include "rope_check.h"

namespace ggml {

namespace {

std::vector<TensorDesc> shape(const OpInputs& in) {
  return rope_shape(in, 1);
}

}  // namespace

const OpDef k_rotate{.name = "rotate",
                     .shape = shape,
                     .decompose = nullptr,
                     .cost = cost::elementwise,
                     .shard = {PlacementAxis::heads, ShardResult::slice}};

}  // namespace ggml
