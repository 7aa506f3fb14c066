#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/simulated.h"
#include "llama/context_memory.h"
#include "llama/placement.h"
#include "model/weights.h"
#include "models/lora_file.h"
#include "test_support.h"

namespace llama {
namespace {

/// Tiny models of many families: ours, and the goldens where they are.
std::vector<std::string> models() {
  std::vector<std::string> paths;
  for (const char* name : {"llama", "mixtral", "qwen2", "qwen3moe-q8_0", "gemma3", "llama-q4_k"})
    paths.push_back((tandem::data_dir() / "models" / (std::string(name) + ".gguf")).string());
  const auto shared = tandem::shared_dir();
  for (const char* name : {"deepseek2-lite", "deepseek2-v3", "gpt-oss", "qwen3next", "glm4moe", "gemma2"}) {
    if (!shared) break;
    const std::filesystem::path path = *shared / "data" / "models" / (std::string(name) + ".gguf");
    if (std::filesystem::exists(path)) paths.push_back(path.string());
  }
  return paths;
}

/// The CPU and simulated cards.
struct Machine {
  std::vector<std::unique_ptr<ggml::Device>> devices;
  std::vector<ggml::Device*> pointers;
  std::vector<PlanDevice> descriptions;

  explicit Machine(int n_cards) {
    ggml::CpuOptions options;
    options.n_threads = 1;
    add(ggml::make_cpu_device(options));
    for (int i = 0; i < n_cards; ++i) {
      ggml::SimulatedDeviceSpec spec;
      spec.name = "CUDA" + std::to_string(i);
      spec.memory_bytes = std::uint64_t{64} << 30;
      add(ggml::make_simulated_device(spec, ggml::DeviceId(i + 1)));
      descriptions.back().weight_bytes = [device = pointers.back()](ggml::DType type, const ggml::Shape& shape) {
        return device->weight_bytes(type, shape);
      };
    }
  }

 private:
  void add(std::unique_ptr<ggml::Device> device) {
    PlanDevice description;
    description.name = device->name();
    description.total_bytes = device->memory().total;
    description.free_bytes = device->memory().free;
    description.bandwidth = descriptions.empty() ? 60e9 : 1e12;
    description.arithmetic = descriptions.empty() ? 4e12 : 2e14;
    description.link = descriptions.empty() ? 0 : 25e9;
    descriptions.push_back(std::move(description));
    pointers.push_back(device.get());
    devices.push_back(std::move(device));
  }
};

template <class T>
T one_of(std::mt19937& random, std::initializer_list<T> values) {
  return *(values.begin() + random() % values.size());
}

PlacementRules random_rules(std::mt19937& random, int n_layer, int n_cards) {
  PlacementRules rules;
  if (random() % 2 == 0) rules.n_gpu_layers = static_cast<int>(random() % static_cast<unsigned>(n_layer + 2));
  if (random() % 4 == 0) rules.cpu_moe = true;
  if (random() % 4 == 0) rules.n_cpu_moe = static_cast<int>(random() % 4);
  if (random() % 4 == 0) rules.kv_offload = false;
  if (random() % 4 == 0) rules.split_mode = SplitMode::none;
  if (random() % 3 == 0)
    for (int i = 0; i < n_cards; ++i) rules.tensor_split.push_back(static_cast<float>(1 + random() % 4));
  const std::string device =
      random() % 2 == 0 ? "CPU" : "CUDA" + std::to_string(random() % static_cast<unsigned>(n_cards));
  if (random() % 3 == 0)
    rules.tensor_rules.push_back(
        {NamePattern::compile(one_of<const char*>(random, {"ffn_down", "blk\\.1\\.", "attn", "exps", "output"})).take(),
         device});
  return rules;
}

/// An adapter for every matrix of each model, of a rank at which it does not vanish beside the model.
std::vector<std::string> adapters(const std::vector<std::string>& models, const std::filesystem::path& folder) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const golden::F32Model model(models[i]);
    const golden::Lora lora(model, golden::adaptable(model), {.rank = 16});
    paths.push_back(lora.write(folder / (std::to_string(i) + ".gguf")));
  }
  return paths;
}

TEST(Accounting, PlanIsWithinTwoPercentOfWhatSimulatedDevicesCount) {
  ggml::set_log_level(ggml::LogLevel::error);
  std::mt19937 random(23);
  const std::vector<std::string> paths = models();
  const tandem::TempDir folder;
  const std::vector<std::string> loras = adapters(paths, folder.path());
  constexpr int kCases = 200;
  int n_checked = 0, n_staged = 0;
  double worst = 0;
  for (int round = 0; n_checked < kCases; ++round) {
    ASSERT_LT(round, 2 * kCases) << "most cases are refused";
    const std::size_t number = random() % paths.size();
    const std::string& path = paths[number];
    const int n_cards = 1 + static_cast<int>(random() % 4);
    const Machine machine(n_cards);
    ModelParams model_params;
    model_params.path = path;
    if (round % 3 == 0) model_params.adapters = {loras[number]};
    model_params.load_mode = random() % 2 == 0 ? LoadMode::mmap : LoadMode::read;
    model_params.merge_qkv = random() % 4 == 0;
    model_params.merge_up_gate = random() % 4 == 0;
    const std::unique_ptr<Model> outline = Model::outline(model_params);
    ContextParams params;
    params.n_ctx = 64 << random() % 9;
    params.n_ubatch = one_of(random, {64, 64, 256, 256, 512, 512, 2048, 8192});
    params.n_batch = params.n_ubatch * one_of(random, {1, 1, 4});
    params.n_seq_max = one_of(random, {1, 1, 4});
    params.k_type = one_of(random, {ggml::DType::f16, ggml::DType::q8_0, ggml::DType::f32, ggml::DType::q4_0,
                                    ggml::DType::q5_1, ggml::DType::q8_kv});
    params.v_type = one_of(random, {params.k_type, ggml::DType::q6_0});
    PlacementRules rules = random_rules(random, outline->info().n_layer, n_cards);
    rules.mapped = model_params.load_mode == LoadMode::mmap;

    const PlanModel plan_of = plan_model(*outline);
    // Weights that are sent for prompts need staging.
    OffloadRequest request;
    request.enabled = random() % 3 != 0;
    if (random() % 2 == 0) request.min_batch = one_of(random, {2, 32, 256});
    request.n_batch = params.n_batch;
    request.n_ubatch = params.n_ubatch;
    const auto offload_of = [&](const Plan& made) {
      const std::optional<PromptOffload> found = prompt_offload(plan_of, made, rules, request);
      return found ? found->offload : OpOffload{};
    };
    const ContextMemory memory = context_memory(*outline, machine.pointers, machine.descriptions, params, offload_of);
    Plan plan = place(plan_of, machine.descriptions, rules).plan;
    try {
      add_context_use(memory, params.n_ctx, plan);
    } catch (const ggml::Error& error) {
      ASSERT_EQ(error.code(), ggml::ErrorCode::unsupported) << error.what();  // a cache type that its heads cannot have
      continue;
    }
    const std::unique_ptr<Model> model = Model::load(model_params, machine.pointers, plan, {});
    params.offload = offload_of(plan);
    const Context context(*model, machine.pointers, plan, params);
    n_staged += context.stats().staging_bytes > 0 ? 1 : 0;
    ++n_checked;
    for (std::size_t d = 1; d < machine.devices.size(); ++d) {
      const ggml::DeviceMemory now = machine.devices[d]->memory();
      const auto counted = static_cast<double>(now.total - now.free);
      const auto planned = static_cast<double>(plan.use[d].total());
      if (counted == 0.0 && planned == 0.0) continue;
      const double error = std::abs(planned - counted) / std::max(counted, 1.0);
      worst = std::max(worst, error);
      EXPECT_LE(error, 0.02) << path << " round " << round << " " << machine.devices[d]->name() << ": planned "
                             << planned << ", counted " << counted;
    }
  }
  EXPECT_GT(n_staged, 20);
  std::printf("%d cases, %d with staging, worst error %.4f\n", n_checked, n_staged, worst);
}

/// Bytes of memory, other than pages of a file, that a plan wants of the host for weights.
std::uint64_t planned_on_host(const Plan& plan) {
  std::uint64_t in_plan = 0, not_pages = 0;
  for (const TensorPlan& tensor : plan.tensors)
    for (const TensorPlan::Place& place : tensor.places) {
      if (place.device.v != 0) continue;
      in_plan += place.bytes;
      if (place.kind != ggml::BufferKind::mapping) not_pages += place.bytes;
    }
  return plan.use[0].weights - in_plan + not_pages;
}

TEST(Accounting, HostCountsMergedTensorsWhichAreNoPagesOfTheFile) {
  ggml::set_log_level(ggml::LogLevel::error);
  for (const std::string& path : models()) {
    for (const bool on_card : {false, true})
      for (const LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
        const Machine machine(on_card ? 1 : 0);
        ModelParams model_params;
        model_params.path = path;
        model_params.load_mode = mode;
        model_params.merge_qkv = model_params.merge_up_gate = true;
        const std::unique_ptr<Model> outline = Model::outline(model_params);
        ContextParams params;
        params.n_ctx = 256;
        PlacementRules rules;
        rules.mapped = mode == LoadMode::mmap;
        rules.cpu_moe = true;
        Plan plan = place(plan_model(*outline), machine.descriptions, rules).plan;
        add_context_use(context_memory(*outline, machine.pointers, machine.descriptions, params), params.n_ctx, plan);
        const std::unique_ptr<Model> model = Model::load(model_params, machine.pointers, plan, {});
        std::uint64_t held = 0;
        for (const auto& buffer : model->weights().buffers)
          if (buffer->kind() != ggml::BufferKind::device) held += buffer->bytes();
        const auto planned = static_cast<double>(planned_on_host(plan));
        // Each tensor begins on a cache line.
        constexpr double kLine = 64;
        EXPECT_NEAR(planned, static_cast<double>(held),
                    0.02 * static_cast<double>(held) + kLine * static_cast<double>(plan.tensors.size()))
            << path << (on_card ? " on a card" : "") << (mode == LoadMode::mmap ? " mapped" : " read");
      }
  }
}

TEST(Accounting, HostCountsWhatAContextOnTheCpuAllocates) {
  ggml::set_log_level(ggml::LogLevel::error);
  const Machine machine(0);
  for (const std::string& path : models()) {
    ModelParams model_params;
    model_params.path = path;
    const std::unique_ptr<Model> outline = Model::outline(model_params);
    ContextParams params;
    params.n_ctx = 1000;
    params.n_seq_max = 2;
    Plan plan = place(plan_model(*outline), machine.descriptions, {}).plan;
    add_context_use(context_memory(*outline, machine.pointers, machine.descriptions, params), params.n_ctx, plan);
    const std::unique_ptr<Model> model = Model::load(model_params, *machine.pointers.front(), {});
    const Context context(*model, *machine.pointers.front(), params);
    EXPECT_EQ(plan.use[0].kv, context.stats().kv_total_bytes) << path;
    EXPECT_GE(plan.use[0].arenas, context.stats().arena_bytes) << path;
  }
}

}  // namespace
}  // namespace llama
