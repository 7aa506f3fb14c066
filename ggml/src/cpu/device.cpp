#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "cpu/program.h"
#include "ggml/cpu.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/threads.h"

namespace ggml {
namespace {

using cpu::CpuProgram;
using cpu::KernelTable;

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "CPU";
}

DeviceMemory host_memory() {
  DeviceMemory memory;
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string key;
    std::uint64_t kib = 0;
    fields >> key >> kib;
    if (key == "MemTotal:") memory.total = kib * 1024;
    if (key == "MemAvailable:") memory.free = kib * 1024;
  }
  return memory;
}

/// Anonymous pages: zero at first, taken from the system only when touched, in huge pages where the system has them.
class HostBuffer final : public Buffer {
 public:
  HostBuffer(std::size_t bytes, BufferKind kind) : bytes_(bytes), kind_(kind) {
    const std::size_t page = bytes >= kHugePage ? kHugePage : static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    // Room to place the start on a page of the wished size.
    mapped_bytes_ = (bytes + page - 1) / page * page + (page == kHugePage ? kHugePage : 0);
    if (mapped_bytes_ < bytes) fail();
    if (mapped_bytes_ == 0) return;
    map_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) fail();
    const std::uintptr_t start = (reinterpret_cast<std::uintptr_t>(map_) + page - 1) / page * page;
    data_ = reinterpret_cast<std::byte*>(start);
    if (page == kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~HostBuffer() override {
    if (map_ != MAP_FAILED) munmap(map_, mapped_bytes_);
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  [[nodiscard]] std::byte* data() noexcept override { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] BufferKind kind() const noexcept override { return kind_; }

 private:
  [[noreturn]] void fail() const {
    throw DeviceError(
        ErrorCode::out_of_memory,
        strf("CPU: cannot allocate %zu bytes, %llu of %llu are free", bytes_,
             static_cast<unsigned long long>(host_memory().free), static_cast<unsigned long long>(host_memory().total)),
        "use a smaller context (-c), a smaller batch (-ub) or a smaller KV type (-ctk, -ctv)");
  }

  std::size_t bytes_;
  BufferKind kind_;
  std::size_t mapped_bytes_ = 0;
  void* map_ = MAP_FAILED;
  std::byte* data_ = nullptr;
};

/// Work on the CPU is done when submit() returns, so its Event only keeps the outcome.
class OutcomeEvent final : public Event {
 public:
  // wait() throws it. NOLINTNEXTLINE(bugprone-throw-keyword-missing)
  explicit OutcomeEvent(std::exception_ptr failure) : failure_(std::move(failure)) {}
  void wait() override {
    if (failure_) std::rethrow_exception(failure_);
  }
  [[nodiscard]] bool ready() override { return true; }

 private:
  std::exception_ptr failure_;
};

ThreadPoolOptions pool_options(int n_threads, const CpuTeam& team) {
  return {.n_threads = n_threads,
          .affinity = team.affinity,
          .pin_each = team.pin_each,
          .priority = team.priority,
          .poll = team.poll};
}

/// The threads of decode and prompt steps: one pool, of which a step takes as many as it may have; two where prompts
/// have other cores or another priority.
class CpuThreads {
 public:
  CpuThreads(const CpuOptions& options, int n_decode, int n_batch) : n_decode_(n_decode), n_batch_(n_batch) {
    if (!options.batch_team || *options.batch_team == options.team) {
      decode_ = std::make_unique<ThreadPool>(pool_options(std::max(n_decode, n_batch), options.team));
      return;
    }
    decode_ = std::make_unique<ThreadPool>(pool_options(n_decode, placed(options.team)));
    batch_ = std::make_unique<ThreadPool>(pool_options(n_batch, placed(*options.batch_team)));
  }

  [[nodiscard]] int most() const noexcept { return std::max(n_decode_, n_batch_); }
  [[nodiscard]] int team_size(bool is_prompt) const noexcept { return is_prompt ? n_batch_ : n_decode_; }
  [[nodiscard]] ThreadPool& pool(bool is_prompt) const noexcept { return is_prompt && batch_ ? *batch_ : *decode_; }

 private:
  /// The calling thread is in both teams, so each has to say where it belongs: the other has moved it.
  static CpuTeam placed(CpuTeam team) {
    if (team.affinity.empty()) team.affinity = allowed_cores();
    return team;
  }

  int n_decode_, n_batch_;
  std::unique_ptr<ThreadPool> decode_, batch_;  // batch_ null: decode_ serves both
};

struct CpuResources {
  const KernelTable& kernels;
  CpuThreads threads;
};

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(CpuResources& resources) : r_(resources) {}

  [[nodiscard]] std::size_t arena_bytes(const Graph& graph, const CompileOptions& options) override {
    const cpu::LoweredGraph lowered = cpu::lower(graph, r_.kernels, options);
    std::vector<std::size_t> offsets;
    return plan_memory(lowered.graph, cpu::measure_scratch(lowered, r_.kernels, r_.threads.most()), offsets)
        .arena_bytes;
  }

  std::unique_ptr<Program> compile(const Graph& graph, std::span<const PortBinding> ports, Buffer& arena,
                                   const CompileOptions& options) override {
    return std::make_unique<CpuProgram>(
        cpu::lower(graph, r_.kernels, options),
        cpu::CpuProgramInputs{r_.kernels, r_.threads.most(), ports, arena, options.observer});
  }

  std::unique_ptr<Event> submit(Program& program, const StepCounts& counts, const StopToken& stop) override {
    std::exception_ptr failure;
    try {
      run(program, counts, stop);
    } catch (...) {
      failure = std::current_exception();
    }
    return std::make_unique<OutcomeEvent>(std::move(failure));
  }

  void run(Program& program, const StepCounts& counts, const StopToken& stop) override {
    // One new token per sequence is bound by memory, more than that by arithmetic: two settings, as -t and -tb say.
    const bool is_prompt = counts.n_tokens > (counts.n_spans > 1 ? counts.n_spans : 1);
    static_cast<CpuProgram&>(program).run(r_.threads.pool(is_prompt), r_.threads.team_size(is_prompt), counts, stop);
  }

 private:
  CpuResources& r_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(const CpuOptions& options, int n_threads, int n_threads_batch)
      : description_(processor_name()),
        resources_{cpu::select_table(options.isa), CpuThreads(options, n_threads, n_threads_batch)} {
    logf(LogLevel::debug, "cpu: processor=\"%s\" isa=%s threads=%d threads_batch=%d", description_.c_str(),
         resources_.kernels.name, n_threads, n_threads_batch);
  }

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const std::string& description() const noexcept override { return description_; }
  [[nodiscard]] DeviceMemory memory() const override { return host_memory(); }
  std::unique_ptr<Buffer> allocate(std::size_t bytes, BufferKind kind) override {
    return std::make_unique<HostBuffer>(bytes, kind);
  }
  std::unique_ptr<Executor> make_executor() override { return std::make_unique<CpuExecutor>(resources_); }

 private:
  std::string name_ = "CPU";
  std::string description_;
  CpuResources resources_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  if (options.n_threads < 0 || options.n_threads_batch < 0) {
    throw Error(ErrorCode::invalid_argument,
                strf("thread counts %d and %d (batch): negative", options.n_threads, options.n_threads_batch));
  }
  const int n_threads = options.n_threads > 0 ? options.n_threads : physical_cores();
  const int n_threads_batch = options.n_threads_batch > 0 ? options.n_threads_batch : n_threads;
  return std::make_unique<CpuDevice>(options, n_threads, n_threads_batch);
}

}  // namespace ggml
