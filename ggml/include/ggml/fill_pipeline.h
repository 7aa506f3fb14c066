#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace ggml::gguf {

/// Makes numbered chunks on several cores while one thread consumes them in order: how files of computed data are
/// written.
///
/// `make` is called from worker threads, each chunk once, and must not throw. At most two chunks per worker are in
/// memory. The destructor stops the workers, also in the middle of the work.
class FillPipeline {
 public:
  using Make = std::function<void(std::size_t number, std::span<std::byte> dst)>;

  /// `n_workers` <= 0: as many as the machine has processors.
  FillPipeline(std::vector<std::size_t> chunk_bytes, Make make, int n_workers = 0);
  ~FillPipeline();
  FillPipeline(const FillPipeline&) = delete;
  FillPipeline& operator=(const FillPipeline&) = delete;

  /// The next chunk's bytes, valid until the next call. Pre: not called more often than there are chunks.
  std::span<const std::byte> next();

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    bool ready = false;
  };

  void work();
  Slot& slot_of(std::size_t number) { return slots_[number % slots_.size()]; }

  const std::vector<std::size_t> chunk_bytes_;
  const Make make_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t claimed_ = 0;   // chunks that a worker has taken
  std::size_t returned_ = 0;  // chunks that next() has handed out
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace ggml::gguf
