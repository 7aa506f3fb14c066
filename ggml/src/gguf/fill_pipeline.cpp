#include "ggml/fill_pipeline.h"

#include <algorithm>

namespace ggml::gguf {

FillPipeline::FillPipeline(std::vector<std::size_t> chunk_bytes, Make make, int n_workers)
    : chunk_bytes_(std::move(chunk_bytes)), make_(std::move(make)) {
  const std::size_t workers =
      n_workers > 0 ? static_cast<std::size_t>(n_workers) : std::max(1U, std::thread::hardware_concurrency());
  slots_.resize(2 * workers + 1);
  for (std::size_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
}

FillPipeline::~FillPipeline() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void FillPipeline::work() {
  while (true) {
    std::size_t number = 0;
    {
      std::unique_lock lock(mutex_);
      // The slot of chunk n is free once chunk n - slots was consumed; the one handed out last is still being read.
      changed_.wait(lock, [&] {
        return stopping_ || claimed_ == chunk_bytes_.size() || claimed_ + 1 < returned_ + slots_.size();
      });
      if (stopping_ || claimed_ == chunk_bytes_.size()) return;
      number = claimed_++;
    }
    Slot& slot = slot_of(number);
    slot.bytes.resize(chunk_bytes_[number]);
    make_(number, slot.bytes);
    {
      const std::lock_guard lock(mutex_);
      slot.ready = true;
    }
    changed_.notify_all();
  }
}

std::span<const std::byte> FillPipeline::next() {
  std::unique_lock lock(mutex_);
  Slot& slot = slot_of(returned_);
  changed_.wait(lock, [&] { return slot.ready; });
  slot.ready = false;
  ++returned_;
  changed_.notify_all();
  return slot.bytes;
}

}  // namespace ggml::gguf
