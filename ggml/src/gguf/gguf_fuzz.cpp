#include <cstdlib>

#include "ggml/error.h"
#include "ggml/gguf.h"

namespace {

/// Reads every value the way the model code does, so that a lie of the parser becomes a finding of the sanitizer.
std::uint64_t walk_metadata(const ggml::gguf::Metadata& metadata) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : metadata.entries()) {
    if (metadata.find(key) != &value) std::abort();
    if (const auto* array = std::get_if<ggml::gguf::Array>(&value.data)) {
      sum += array->size();
      for (const std::string& text : array->strings) sum += text.size();
      if (array->element == ggml::gguf::ValueType::string) continue;
      for (std::size_t i = 0; i < array->size(); ++i) {
        sum += static_cast<std::uint64_t>(array->integer(i)) + (array->number(i) > 0 ? 1U : 0U);
      }
    }
    try {
      sum += metadata.get_u32(key).value_or(0);
    } catch (const ggml::Error& error) {
      sum += error.message().size();
    }
  }
  return sum;
}

std::uint64_t walk_tensors(const ggml::gguf::File& file, std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (const ggml::gguf::TensorInfo& tensor : file.tensors()) {
    if (file.find(tensor.name) != &tensor) std::abort();
    if (tensor.bytes != ggml::tensor_bytes(tensor.type, tensor.shape)) std::abort();
    if (tensor.offset > bytes.size() || tensor.bytes > bytes.size() - tensor.offset) std::abort();
    for (const std::byte byte : bytes.subspan(tensor.offset, tensor.bytes)) sum += static_cast<std::uint64_t>(byte);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const ggml::gguf::File file = ggml::gguf::File::parse(bytes, "fuzz.gguf");
    volatile std::uint64_t sink = walk_metadata(file.metadata()) + walk_tensors(file, bytes);
    static_cast<void>(sink);
  } catch (const ggml::Error& error) {
    if (error.message().find("fuzz.gguf: byte ") != 0) std::abort();
  }
  return 0;
}
