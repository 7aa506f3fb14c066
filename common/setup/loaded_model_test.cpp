#include "common/setup/loaded_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "ggml/error.h"
#include "llama/context.h"

namespace common {
namespace {

Settings settings_of(int n_threads, std::optional<int> n_gpu_layers) {
  Settings settings;
  settings.model.path = "tests/data/models/llama.gguf";
  settings.threads.n_threads = n_threads;
  settings.threads.poll = 0;
  settings.context.n_ctx = 256;
  SimulatedDevice& card = settings.placement.simulated.emplace_back();
  card.name = "CUDA0";
  card.bytes = std::uint64_t{64} << 20;
  settings.placement.fit = Fit::off;
  settings.placement.n_gpu_layers = n_gpu_layers;
  return settings;
}

/// The logits behind one token.
std::vector<float> logits(const LoadedModel& loaded) {
  const PlannedRun& planned = loaded.planned();
  llama::Context context(loaded.model(), planned.machine->pointers(), planned.plan(), planned.context);
  const llama::Token token = 7;
  const llama::StepSequence row{context.create_sequence(), {&token, 1}, llama::Outputs::last, nullptr};
  const std::span<const float> out = context.run({{&row, 1}}).sequences.front().logits;
  return {out.begin(), out.end()};
}

TEST(LoadedModel, OtherThreadsAndContextsUseTheWeightsThatAreThere) {
  LoadedModel loaded;
  Settings settings = settings_of(1, 0);
  (void)loaded.prepare(settings, 1);
  const std::vector<float> first = logits(loaded);
  settings.threads.n_threads = 2;
  (void)loaded.prepare(settings, 1);
  EXPECT_EQ(logits(loaded), first);
  settings.context.n_ctx = 512;
  settings.context.n_ubatch = 64;
  settings.cache.type_k = ggml::DType::q8_0;
  settings.model.warmup = false;
  EXPECT_EQ(loaded.prepare(settings, 2).context.n_ctx, 512);
  (void)logits(loaded);
  EXPECT_EQ(loaded.loads(), 1);
}

TEST(LoadedModel, ItIsThePlaceOfWeightsThatCountsAndNotTheFlag) {
  LoadedModel loaded;
  (void)loaded.prepare(settings_of(1, 99), 1);
  const std::vector<float> on_card = logits(loaded);
  (void)loaded.prepare(settings_of(1, std::numeric_limits<int>::max()), 1);
  EXPECT_EQ(loaded.loads(), 1);
  (void)loaded.prepare(settings_of(2, 99), 1);  // the card stays when the CPU gets other threads
  EXPECT_EQ(logits(loaded), on_card);
  EXPECT_EQ(loaded.loads(), 1);
  (void)loaded.prepare(settings_of(2, 2), 1);
  EXPECT_EQ(logits(loaded), on_card);
  EXPECT_EQ(loaded.loads(), 2);
  (void)loaded.prepare(settings_of(2, 2), 1);
  EXPECT_EQ(loaded.loads(), 2);
}

TEST(LoadedModel, AnotherFileWayOfReadingOrMachineLoadsAgain) {
  LoadedModel loaded;
  Settings settings = settings_of(1, 0);
  (void)loaded.prepare(settings, 1);
  settings.model.load_mode = LoadMode::read;
  (void)loaded.prepare(settings, 1);
  EXPECT_EQ(loaded.loads(), 2);
  settings.model.path = "tests/data/models/llama-q8_0.gguf";
  (void)loaded.prepare(settings, 1);
  EXPECT_EQ(loaded.loads(), 3);
  settings.placement.simulated.clear();
  (void)loaded.prepare(settings, 1);
  EXPECT_EQ(loaded.loads(), 4);
  (void)logits(loaded);
}

/// Pieces of work in a trace.
int count_pieces(const std::filesystem::path& path) {
  std::ifstream file(path);
  int n = 0;
  for (std::string line; std::getline(file, line);)
    if (line.find(R"("ph":"X")") != std::string::npos) ++n;
  return n;
}

TEST(LoadedModel, ATraceGoesOnInTheSameFileOnTheNextMachine) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("loaded-" + std::to_string(getpid()) + ".json");
  int n_first = 0;
  {
    LoadedModel loaded;
    Settings settings = settings_of(1, 1);
    settings.schedule.trace_file = path.string();
    (void)loaded.prepare(settings, 1);
    EXPECT_TRUE(loaded.planned().machine->virtual_time);
    (void)logits(loaded);
    loaded.planned().machine->trace->flush();
    n_first = count_pieces(path);
    settings.threads.n_threads = 2;
    (void)loaded.prepare(settings, 1);
    (void)logits(loaded);
  }
  EXPECT_GT(n_first, 1);
  EXPECT_EQ(count_pieces(path), 2 * n_first);
  std::filesystem::remove(path);
}

TEST(LoadedModel, AFailureLeavesNothingHalf) {
  LoadedModel loaded;
  (void)loaded.prepare(settings_of(1, 0), 1);
  Settings wrong = settings_of(1, 0);
  wrong.model.path = "no/such/file.gguf";
  EXPECT_THROW((void)loaded.prepare(wrong, 1), ggml::Error);
  wrong = settings_of(1, 99);
  wrong.placement.simulated[0].bytes = std::uint64_t{1} << 20;
  EXPECT_THROW((void)loaded.prepare(wrong, 1), DoesNotFit);
  (void)loaded.prepare(settings_of(1, 0), 1);
  EXPECT_EQ(loaded.loads(), 2);
  (void)logits(loaded);
}

}  // namespace
}  // namespace common
