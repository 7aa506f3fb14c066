#pragma once

#include <cstdint>
#include <memory>

#include "ggml/device.h"

namespace llama {

/// A device that only counts what is allocated on it: the same executors and sizes as the device behind it, but memory
/// that is address space and nothing more until somebody writes to it.
class CountingDevice final : public ggml::Device {
 public:
  explicit CountingDevice(ggml::Device& behind) : behind_(behind) {}

  /// What is allocated at present.
  [[nodiscard]] std::uint64_t device_bytes() const { return counts_->device; }
  [[nodiscard]] std::uint64_t host_bytes() const { return counts_->host; }

  struct Counts {
    std::uint64_t device = 0, host = 0;
  };

  [[nodiscard]] const std::string& name() const noexcept override { return behind_.name(); }
  [[nodiscard]] const std::string& description() const noexcept override { return behind_.description(); }
  [[nodiscard]] ggml::DeviceMemory memory() const override { return behind_.memory(); }
  [[nodiscard]] ggml::DeviceId id() const noexcept override { return behind_.id(); }
  [[nodiscard]] bool supports(ggml::DType type) const noexcept override { return behind_.supports(type); }
  [[nodiscard]] bool supports(ggml::Op op) const noexcept override { return behind_.supports(op); }
  [[nodiscard]] bool supports_cache(ggml::DType type) const noexcept override { return behind_.supports_cache(type); }
  [[nodiscard]] std::size_t weight_bytes(ggml::DType type, const ggml::Shape& shape) const noexcept override {
    return behind_.weight_bytes(type, shape);
  }
  [[nodiscard]] bool memory_is_host() const noexcept override { return behind_.memory_is_host(); }
  std::unique_ptr<ggml::Executor> make_executor() override { return behind_.make_executor(); }
  std::unique_ptr<ggml::Executor> make_copier() override { return behind_.make_copier(); }
  [[nodiscard]] bool streams_weights(ggml::DType type) const noexcept override { return behind_.streams_weights(type); }
  [[nodiscard]] std::size_t landing_bytes() const noexcept override { return behind_.landing_bytes(); }
  std::unique_ptr<ggml::Buffer> allocate(std::size_t bytes, ggml::BufferKind kind) override;
  [[nodiscard]] std::string details() const override { return behind_.details(); }
  // Nothing that was allocated here has contents.
  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {}
  void clear(std::byte* dst, std::size_t bytes) override {}

 private:
  ggml::Device& behind_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace llama
