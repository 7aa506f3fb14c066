// llama-gguf-split: splits a model into several files, or merges them.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <filesystem>

#include "common/setup/run_tool.h"
#include "copy.h"
#include "ggml/error.h"
#include "split_plan.h"

namespace {

using common::GgufSplitSettings;
using ggml::gguf::File;
using ggml::gguf::SplitModel;
using ggml::gguf::SplitWriter;

constexpr double kMega = 1e6;

std::atomic<bool> g_stop{false};  // a signal handler may touch nothing else
static_assert(std::atomic<bool>::is_always_lock_free);

/// Renaming a new file onto one that is being read would leave the user with the copy only.
void check_not_input(const File& file, const SplitWriter& writer) {
  for (const ggml::gguf::Shard& shard : file.shards()) {
    for (const std::string& path : writer.paths()) {
      std::error_code failed;
      if (!std::filesystem::equivalent(shard.path, path, failed)) continue;
      throw ggml::Error(ggml::ErrorCode::invalid_argument, path + ": input and output are the same file",
                        "give another output");
    }
  }
}

void split(const GgufSplitSettings& wanted) {
  const File file = File::open(wanted.files[0]);
  SplitModel model = gguf_split::describe(file);
  model.part_tensors = gguf_split::plan_parts(file, wanted);
  SplitWriter writer(wanted.files[1], model);
  check_not_input(file, writer);
  fmt::print("n_split: {}\n", writer.paths().size());
  for (std::size_t i = 0; i < writer.paths().size(); ++i) {
    fmt::print("split {:05}: n_tensors = {}, total_size = {:.1f}M\n", i + 1, model.part_tensors[i],
               static_cast<double>(writer.file_bytes(i)) / kMega);
  }
  if (wanted.dry_run) return;
  gguf_split::copy_model(file, writer, g_stop);
  fmt::print("{} files written, {} tensors: {}\n", writer.paths().size(), model.tensors.size(), writer.paths().front());
}

void merge(const GgufSplitSettings& wanted) {
  const File file = File::open(wanted.files[0]);
  if (std::filesystem::exists(wanted.files[1])) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, wanted.files[1] + ": exists already",
                      "a merge replaces no file: give another name or remove it");
  }
  const SplitModel model = gguf_split::describe(file);
  SplitWriter writer(wanted.files[1], model);
  fmt::print("{} files, {} tensors, total_size = {:.1f}M\n", file.shards().size(), model.tensors.size(),
             static_cast<double>(writer.total_bytes()) / kMega);
  if (wanted.dry_run) return;
  gguf_split::copy_model(file, writer, g_stop);
  fmt::print("{} written\n", wanted.files[1]);
  if (!wanted.delete_splits) return;
  for (const ggml::gguf::Shard& shard : file.shards()) {
    std::filesystem::remove(shard.path);
    fmt::print("{} removed\n", shard.path);
  }
}

int run(const common::Settings& settings) {
  std::signal(SIGINT, [](int) { g_stop = true; });
  std::signal(SIGTERM, [](int) { g_stop = true; });
  if (settings.gguf_split.merge) {
    merge(settings.gguf_split);
  } else {
    split(settings.gguf_split);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::gguf_split, argc, argv, run);
}
