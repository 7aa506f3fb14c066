#include "models/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> g_count{0};

}  // namespace

// In a unit of their own: where the compiler sees them beside their callers, it warns of mismatched pairs.
void* operator new(std::size_t bytes) {
  g_count.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes > 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
// The form that std::stable_sort takes its buffer by: it is given back through the same delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  g_count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace llama {

std::size_t allocation_count() noexcept {
  return g_count.load(std::memory_order_relaxed);
}

}  // namespace llama
