#include "cost.h"
#include "sample_check.h"

namespace ggml {

const OpDef k_pick{.name = "pick", .shape = sample_shape, .decompose = nullptr, .cost = cost::elementwise, .shard = {}};

}  // namespace ggml
