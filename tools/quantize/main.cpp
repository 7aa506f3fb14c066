// llama-quantize: writes a model with other types of weights.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>

#include "common/log/progress.h"
#include "common/setup/output_file.h"
#include "common/setup/run_tool.h"
#include "ggml/log.h"
#include "request.h"

namespace {

using ggml::gguf::File;

constexpr double kMiB = 1024.0 * 1024.0;

std::atomic<bool> g_stop{false};  // a signal handler may touch nothing else
static_assert(std::atomic<bool>::is_always_lock_free);

double mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / kMiB;
}

void print_tensor(const File& file, const llama::QuantizePlan& plan, std::size_t index) {
  const llama::TensorChoice& choice = plan.tensors[index];
  const ggml::gguf::TensorInfo& source = file.tensors()[choice.source];
  std::string line =
      fmt::format("[{:4}/{:4}] {:36} [{}], ", index + 1, plan.tensors.size(), choice.name, source.shape.text());
  line += fmt::format("{} ", ggml::type_info(source.type).id);
  if (choice.type == source.type) {
    line += fmt::format("kept, {:.2f} MiB", mib(choice.bytes_after));
  } else {
    line += fmt::format("-> {}, {:.2f} -> {:.2f} MiB", ggml::type_info(choice.type).id, mib(choice.bytes_before),
                        mib(choice.bytes_after));
  }
  if (!choice.note.empty()) line += fmt::format(" ({})", choice.note);
  fmt::print("{}\n", line);
}

void print_totals(const File& file, const llama::QuantizePlan& plan) {
  std::uint64_t weights = 0;
  std::size_t replaced = 0;
  std::map<std::string_view, std::pair<int, std::uint64_t>> types;  // tensors, bytes
  for (const llama::TensorChoice& choice : plan.tensors) {
    weights += static_cast<std::uint64_t>(file.tensors()[choice.source].shape.elements());
    replaced += choice.note.find("divide") != std::string::npos ? 1 : 0;
    auto& [tensors, bytes] = types[ggml::type_info(choice.type).id];
    ++tensors;
    bytes += choice.bytes_after;
  }
  const auto bits = [&](std::uint64_t bytes) {
    return weights == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
  };
  for (const auto& [type, use] : types)
    fmt::print("type {:8}: {:4} tensors, {:9.2f} MiB\n", type, use.first, mib(use.second));
  fmt::print("model size  = {:9.2f} MiB ({:.2f} BPW)\n", mib(plan.bytes_before()), bits(plan.bytes_before()));
  fmt::print("quant size  = {:9.2f} MiB ({:.2f} BPW)\n", mib(plan.bytes_after()), bits(plan.bytes_after()));
  if (replaced > 0) {
    ggml::logf(ggml::LogLevel::warn,
               "%zu of %zu tensors got another type, because their shape does not suit the one asked for", replaced,
               plan.tensors.size());
  }
}

void write(const File& file, const llama::QuantizePlan& plan, const quantize::Request& request) {
  const auto begin = std::chrono::steady_clock::now();
  common::Progress bar("quantizing", static_cast<std::int64_t>(plan.bytes_after()), common::Progress::Unit::bytes);
  llama::write_quantized(
      file, plan, request.output, request.params.n_threads,
      [&](const llama::QuantizeProgress& at) { bar.update(static_cast<std::int64_t>(at.done_bytes)); }, g_stop);
  bar.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print("{} written in {:.1f} s\n", request.output, seconds.count());
}

int run(const common::Settings& settings) {
  std::signal(SIGINT, [](int) { g_stop = true; });
  std::signal(SIGTERM, [](int) { g_stop = true; });
  llama::ImportanceMatrix importance;
  const quantize::Request request = quantize::make_request(settings, importance);
  const File file = File::open(request.input);
  const llama::QuantizePlan plan = llama::plan_quantization(file, request.params);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) print_tensor(file, plan, i);
  print_totals(file, plan);
  for (const std::string& warning : plan.warnings) ggml::logf(ggml::LogLevel::warn, "%s", warning.c_str());
  if (settings.quantize.dry_run) return 0;
  common::check_output(request.output, std::array{settings.quantize.imatrix});
  write(file, plan, request);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::quantize, argc, argv, run);
}
