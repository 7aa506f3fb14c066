#include "ggml/tensor.h"

#include "ggml/log.h"

namespace ggml {

int Shape::dims() const {
  int n = kMaxDims;
  while (n > 1 && ne[static_cast<std::size_t>(n - 1)] == 1) --n;
  return n;
}

std::string Shape::text() const {
  std::string out = strf("%lld", static_cast<long long>(ne[0]));
  for (int axis = 1; axis < dims(); ++axis) out += strf(" x %lld", static_cast<long long>((*this)[axis]));
  return out;
}

std::size_t tensor_bytes(DType type, const Shape& shape) noexcept {
  return row_bytes(type, shape[0]) * static_cast<std::size_t>(shape.rows()) +
         static_cast<std::size_t>(type_info(type).tensor_trailer_bytes);
}

}  // namespace ggml
