#pragma once

#include <cstddef>
#include <span>

#include "ggml/device.h"

namespace ggml {

/// The memory bound to a tensor's port. Throws Error(internal) naming tensor, port and bytes when it is unbound or too
/// small.
[[nodiscard]] std::byte* port_address(const Tensor& tensor, std::span<const PortBinding> ports);

/// Fills in the addresses of views from those of the tensors they show. `addresses`: per TensorId, null where unbound.
void resolve_views(const Graph& graph, std::span<std::byte*> addresses);

}  // namespace ggml
