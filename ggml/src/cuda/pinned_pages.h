#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ggml/device.h"

namespace ggml::cuda {

/// The pages of which all bytes are in `memory`: what is around it may be somebody else's.
[[nodiscard]] std::span<const std::byte> whole_pages(std::span<const std::byte> memory);

/// Registers the whole pages of host memory with all cards, which then copy from them in place. Who asks for the same
/// memory while it is registered shares that. Null, with one warning in the program's life, where the system refuses;
/// null also for memory that is pinned already. Thread-safe.
[[nodiscard]] std::unique_ptr<PinnedMemory> pin_pages(int device, std::span<const std::byte> memory);

}  // namespace ggml::cuda
