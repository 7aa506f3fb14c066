#pragma once

#include <cstddef>

namespace llama {

/// Calls of operator new in this program so far: tests that link allocation_count.cpp show with it that a path
/// allocates nothing. Thread-safe.
[[nodiscard]] std::size_t allocation_count() noexcept;

}  // namespace llama
