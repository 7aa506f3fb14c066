#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "ggml/error.h"

namespace llama {

/// A device for tests that need memory and nothing else. Fresh memory holds a NaN pattern, so that reading what nobody
/// wrote shows.
class MemoryOnlyDevice : public ggml::Device {
 public:
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const std::string& description() const noexcept override { return name_; }
  [[nodiscard]] ggml::DeviceMemory memory() const override { return {}; }
  std::unique_ptr<ggml::Buffer> allocate(std::size_t bytes, ggml::BufferKind kind) override {
    return std::make_unique<Memory>(bytes, kind);
  }
  std::unique_ptr<ggml::Executor> make_executor() override {
    throw ggml::Error(ggml::ErrorCode::unsupported, "a device of memory only computes nothing");
  }

 private:
  class Memory final : public ggml::Buffer {
   public:
    Memory(std::size_t bytes, ggml::BufferKind kind) : bytes_(bytes, std::byte{0xFF}), kind_(kind) {}
    [[nodiscard]] std::byte* data() noexcept override { return bytes_.data(); }
    [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_.size(); }
    [[nodiscard]] ggml::BufferKind kind() const noexcept override { return kind_; }

   private:
    std::vector<std::byte> bytes_;
    ggml::BufferKind kind_;
  };

  std::string name_ = "memory";
};

}  // namespace llama
