#include "core/port_address.h"

#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml {

std::byte* port_address(const Tensor& tensor, std::span<const PortBinding> ports) {
  for (const PortBinding& binding : ports) {
    if (binding.port != tensor.port) continue;
    const std::size_t wanted = tensor_bytes(tensor.type, tensor.shape);
    if (binding.data == nullptr || binding.bytes < wanted) {
      throw Error(ErrorCode::internal,
                  strf("%s: port %d has %zu bytes bound, %zu are needed (%s)", tensor.name.c_str(), tensor.port.v,
                       binding.data == nullptr ? 0 : binding.bytes, wanted, tensor.shape.text().c_str()));
    }
    return static_cast<std::byte*>(binding.data);
  }
  throw Error(ErrorCode::internal, strf("%s: port %d is not bound", tensor.name.c_str(), tensor.port.v));
}

void resolve_views(const Graph& graph, std::span<std::byte*> addresses) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    if (t.role != TensorRole::view) continue;
    std::byte* base = addresses[static_cast<std::size_t>(t.base.v)];
    addresses[i] = base == nullptr ? nullptr : base + t.offset_bytes;
  }
}

}  // namespace ggml
