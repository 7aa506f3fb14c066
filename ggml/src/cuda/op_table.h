#pragma once

#include <string>

namespace ggml::cuda {

/// docs/cuda-ops.md: which ops a card has kernels for, by type of weights and of the cache, and what the others are run
/// as. Asks the code that chooses kernels; needs no card.
[[nodiscard]] std::string op_table_document();

}  // namespace ggml::cuda
