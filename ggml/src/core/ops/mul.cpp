#include "binary_check.h"
#include "cost.h"

namespace ggml {

const OpDef k_mul{.name = "mul",
                  .shape = binary_shape,
                  .decompose = nullptr,
                  .cost = cost::elementwise,
                  .shard = {},
                  .in_place = true};

}  // namespace ggml
