#include "synth.h"

#include <sys/statvfs.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <tuple>

#include "common/log/progress.h"
#include "ggml/error.h"
#include "ggml/fill_pipeline.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "mix.h"
#include "model_metadata.h"
#include "preset.h"
#include "random_blocks.h"
#include "special_values.h"
#include "tensor_plan.h"

namespace gguf_tool {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
/// Large enough that locking costs nothing, small enough that the chunks in flight stay near the cache.
constexpr std::size_t kChunkBytes = std::size_t{8} << 20;

/// Cuts the tensors of a plan into chunks of whole units and fills any of them, from any thread.
class WeightMaker {
 public:
  WeightMaker(const std::vector<PlannedTensor>& plan, const Preset& preset, const SynthRequest& request)
      : plan_(plan), preset_(preset), request_(request) {
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const PlannedTensor& tensor = plan[i];
      const std::size_t total = ggml::tensor_bytes(tensor.type, tensor.shape);
      if (is_special(tensor, request.router_skew)) {
        pieces_.push_back({i, total, nullptr});
        continue;
      }
      const RandomBlocks* blocks = blocks_for(tensor);
      const std::size_t unit = blocks->unit_bytes();
      const std::size_t whole = std::max<std::size_t>(kChunkBytes / unit, 1) * unit;
      for (std::size_t at = 0; at < total; at += whole) pieces_.push_back({i, std::min(whole, total - at), blocks});
    }
  }

  [[nodiscard]] std::vector<std::size_t> chunk_bytes() const {
    std::vector<std::size_t> bytes;
    for (const Piece& piece : pieces_) bytes.push_back(piece.bytes);
    return bytes;
  }

  void make(std::size_t number, std::span<std::byte> dst) const {
    const Piece& piece = pieces_[number];
    // Each chunk has a seed of its own, so that the file does not depend on the number of threads.
    const std::uint64_t seed = request_.seed * 0x9e3779b97f4a7c15U + number;
    if (piece.blocks != nullptr) return piece.blocks->fill(dst, seed);
    const std::vector<float> values = special_values(plan_[piece.tensor], preset_, {seed, request_.router_skew});
    std::memcpy(dst.data(), values.data(), dst.size());
  }

 private:
  struct Piece {
    std::size_t tensor;
    std::size_t bytes;
    const RandomBlocks* blocks;  // null: special values, the tensor whole
  };

  const RandomBlocks* blocks_for(const PlannedTensor& tensor) {
    std::unique_ptr<RandomBlocks>& blocks = blocks_[{tensor.type, tensor.spread, tensor.shape[0]}];
    if (!blocks) blocks = std::make_unique<RandomBlocks>(tensor.type, tensor.spread, tensor.shape[0]);
    return blocks.get();
  }

  const std::vector<PlannedTensor>& plan_;
  const Preset& preset_;
  const SynthRequest& request_;
  std::map<std::tuple<ggml::DType, double, std::int64_t>, std::unique_ptr<RandomBlocks>> blocks_;
  std::vector<Piece> pieces_;
};

std::string size_text(std::uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return size < kGiB ? fmt::format("{:.1f} MiB", size / kMiB) : fmt::format("{:.1f} GiB", size / kGiB);
}

void check_room(const std::string& output, std::uint64_t wanted) {
  const std::filesystem::path folder = std::filesystem::absolute(output).parent_path();
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(folder, failed);
  if (failed || wanted <= space.available) return;  // a folder that does not exist is the writer's error
  struct statvfs facts {};
  if (statvfs(folder.c_str(), &facts) == 0 && (facts.f_flag & ST_RDONLY) != 0) return;  // and so is a read-only one
  throw ggml::Error(ggml::ErrorCode::exceeds_limit,
                    fmt::format("{} needs {}, {} are free", output, size_text(wanted), size_text(space.available)),
                    "--sparse, --layers, --experts or --vocab make it smaller");
}

/// The peers know this layout by its number of layers; whoever compares speeds must not find out from their errors.
void note_limits_of_peers(const Preset& preset) {
  const bool full_rank_q = preset.mla && preset.mla->q_rank == 0;
  if (!full_rank_q || preset.layers == 26 || preset.layers == 27) return;
  ggml::logf(ggml::LogLevel::warn,
             "llama.cpp and ik_llama.cpp load this layout (no q_lora) only with 27 layers, not %d", preset.layers);
}

std::string mix_names(bool writable) {
  std::string names;
  for (const Mix& mix : mixes())
    if (can_write(mix) == writable) names += (names.empty() ? "" : ", ") + std::string(mix.name);
  return names;
}

void stop_if_asked(const std::atomic<bool>& stop, const std::string& output) {
  if (stop) throw ggml::Error(ggml::ErrorCode::cancelled, output + ": stopped, nothing was kept");
}

void write_weights(ggml::gguf::Writer& writer, const WeightMaker& maker, const std::atomic<bool>& stop,
                   const SynthRequest& request) {
  const std::vector<std::size_t> chunks = maker.chunk_bytes();
  std::int64_t total = 0;
  for (const std::size_t bytes : chunks) total += static_cast<std::int64_t>(bytes);
  common::Progress progress("writing " + request.output, total, common::Progress::Unit::bytes);
  ggml::gguf::FillPipeline pipeline(chunks,
                                    [&](std::size_t number, std::span<std::byte> dst) { maker.make(number, dst); });
  std::int64_t done = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    stop_if_asked(stop, request.output);
    const std::span<const std::byte> bytes = pipeline.next();
    writer.write(bytes);
    done += static_cast<std::int64_t>(bytes.size());
    progress.update(done);
  }
  progress.finish();
}

}  // namespace

void synthesise(const SynthRequest& request, const std::atomic<bool>& stop) {
  const Preset preset = find_preset(request.preset, {request.layers, request.experts, request.vocab});
  const Mix& mix = find_mix(request.mix);
  const std::vector<PlannedTensor> plan = plan_tensors(preset, mix);
  note_limits_of_peers(preset);
  ggml::gguf::Writer writer(request.output);
  writer.metadata = model_metadata(preset, mix);
  for (const PlannedTensor& tensor : plan) writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  if (!request.sparse) check_room(request.output, writer.file_bytes());
  writer.begin_data();
  if (request.sparse) {
    for (const PlannedTensor& tensor : plan) writer.write_hole(ggml::tensor_bytes(tensor.type, tensor.shape));
  } else {
    write_weights(writer, WeightMaker(plan, preset, request), stop, request);
  }
  writer.finish();
  fmt::print("{}: {} tensors, {:.2f} GiB of weights{}\n", request.output, plan.size(),
             static_cast<double>(totals_of(plan).bytes) / kGiB, request.sparse ? ", not written (sparse)" : "");
}

void print_presets(const std::string& mix_name) {
  const Mix& mix = find_mix(mix_name);
  fmt::print("mixes: {}\n", mix_names(true));
  if (const std::string others = mix_names(false); !others.empty()) fmt::print("not in this version: {}\n", others);
  fmt::print("\n");
  fmt::print("{:20} {:10} {:>6} {:>7} {:>4} {:>7} {:>9} {:>10}\n", "preset", "arch", "layers", "experts", "used",
             "tensors", "10^9 par.", "GiB " + mix_name);
  for (const Preset& row : presets()) {
    const Preset preset = find_preset(row.name, {});
    fmt::print("{:20} {:10} {:>6} {:>7} {:>4} ", preset.name, preset.arch, preset.layers, preset.experts, preset.used);
    try {
      const std::vector<PlannedTensor> plan = plan_tensors(preset, mix);
      const PlanTotals totals = totals_of(plan);
      fmt::print("{:>7} {:>9.2f} {:>10.2f}\n", plan.size(), static_cast<double>(totals.elements) / 1e9,
                 static_cast<double>(totals.bytes) / kGiB);
    } catch (const ggml::Error& error) {
      fmt::print(" {}\n", error.message());
    }
  }
}

}  // namespace gguf_tool
