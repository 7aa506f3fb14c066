#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ggml/log.h"
#include "llama/context.h"
#include "model/hparams.h"
#include "model/weights.h"
#include "models/golden.h"
#include "models/simulated_machine.h"

/// The switches of fusion (-fmoe, -no-fug, -no-mmad), merging (-mqkv, -muge) and repacking (-rtr): they change the step
/// graph or its weights, not what comes out of it.
namespace llama::golden {
namespace {

struct Switches {
  bool experts = true, up_gate = true, sum = true, merge_qkv = false, merge_up_gate = false, repack = false;

  static Switches of(unsigned bits) {
    return {(bits & 1u) == 0, (bits & 2u) == 0, (bits & 4u) == 0, (bits & 8u) != 0, (bits & 16u) != 0};
  }
  [[nodiscard]] std::string text() const {
    return std::string(experts ? "" : " -no-fmoe") + (up_gate ? "" : " -no-fug") + (sum ? "" : " -no-mmad") +
           (merge_qkv ? " -mqkv" : "") + (merge_up_gate ? " -muge" : "");
  }
};
constexpr unsigned kCombinations = 32;

ContextParams context_params(const Switches& switches) {
  ContextParams params;
  params.n_ctx = 512;
  params.n_batch = params.n_ubatch = 64;
  params.n_seq_max = 2;
  params.k_type = params.v_type = ggml::DType::f32;
  params.fused_experts = switches.experts;
  params.fused_up_gate = switches.up_gate;
  params.fused_expert_sum = switches.sum;
  return params;
}

std::unique_ptr<Model> load_model(const Golden& golden, const SimulatedMachine& machine, const Plan& plan,
                                  const Switches& switches, LoadMode mode = LoadMode::mmap) {
  ModelParams params;
  params.path = golden.path;
  params.load_mode = mode;
  params.merge_qkv = switches.merge_qkv;
  params.merge_up_gate = switches.merge_up_gate;
  params.repack = switches.repack;
  return Model::load(params, machine.devices(), plan, {});
}

struct Outcome {
  Rows rows{kRows};
  std::uint64_t nodes = 0;  // of a step of one token
};

Outcome run(const Model& model, const SimulatedMachine& machine, const Plan& plan, const Golden& golden,
            const ContextParams& params) {
  Context context(model, machine.devices(), plan, params);
  Outcome result;
  run_batch(context, golden, result.rows);
  const SeqId seq = context.create_sequence();
  const Token token = 5;
  const StepSequence s{seq, {&token, 1}, Outputs::last, nullptr};
  context.run({{&s, 1}});
  result.nodes = context.stats().scheduler.nodes;
  context.remove_sequence(seq);
  context.check_integrity();
  return result;
}

bool has_dense_ffn(const Model& model) {
  return !model.hparams().has_experts() || model.hparams().experts.n_ff_shared > 0;
}

/// What a combination asks of a model: what is taken apart, and how many tensors of layers became one.
using Act = std::tuple<bool, bool, bool, int, int>;

Act act_of(const Model& model, const Switches& switches) {
  const bool has_experts = model.hparams().has_experts();
  int n_qkv = 0, n_up_gate = 0;
  for (const TensorSet& layer : model.weights().layers) {
    n_qkv += layer[Role::attn_qkv] ? 1 : 0;
    n_up_gate += layer[Role::ffn_gate_up_exps] ? 1 : 0;
  }
  return {has_experts && !switches.experts, has_experts && !switches.sum, has_dense_ffn(model) && !switches.up_gate,
          n_qkv, n_up_gate};
}

/// That the layers' products read.
std::uint64_t n_matrices(const Model& model) {
  std::uint64_t n = 0;
  for (const TensorSet& layer : model.weights().layers)
    for (const TensorWithParts& parts : layer.parts)
      n += parts.weight != nullptr && parts.weight->shape.dims() > 1 ? 1 : 0;
  return n;
}

double largest_difference(const Rows& a, const Rows& b) {
  double largest = 0;
  for (std::size_t r = 0; r < a.size(); ++r) {
    EXPECT_EQ(a[r].size(), b[r].size());
    for (std::size_t i = 0; i < a[r].size(); ++i)
      largest = std::max(largest, std::fabs(static_cast<double>(a[r][i]) - static_cast<double>(b[r][i])));
  }
  return largest;
}

double tolerance(const Golden& golden) {
  return golden.all_f32() ? 1e-4 : golden.f32_kv.max;
}

class Fusion : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = load(GetParam());
    if (golden_ == nullptr) GTEST_SKIP() << "no golden file";
  }
  std::unique_ptr<Golden> golden_;
};

TEST_P(Fusion, ChangesTheGraphAndNotTheLogits) {
  const SimulatedMachine machine({.n_cards = 0});
  const Plan plan = SimulatedMachine::all_on(0, 0);
  const auto plain = load_model(*golden_, machine, plan, {});
  const Outcome expected = run(*plain, machine, plan, *golden_, context_params({}));
  std::vector<Act> acts;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> counts;  // nodes and matrices
  for (unsigned bits = 0; bits < kCombinations; ++bits) {
    const Switches switches = Switches::of(bits);
    SCOPED_TRACE(switches.text());
    const auto model = load_model(*golden_, machine, plan, switches);
    const Outcome got = run(*model, machine, plan, *golden_, context_params(switches));
    EXPECT_LE(largest_difference(got.rows, expected.rows), tolerance(*golden_));
    acts.push_back(act_of(*model, switches));
    counts.emplace_back(got.nodes, n_matrices(*model));
  }
  // Whatever the other switches say: one that acts on this model makes another step of it, one that does not the same.
  for (unsigned bits = 0; bits < kCombinations; ++bits)
    for (unsigned other = bits + 1; other < kCombinations; ++other) {
      if (((bits ^ other) & ((bits ^ other) - 1)) != 0) continue;  // more than one switch
      EXPECT_EQ(counts[bits] == counts[other], acts[bits] == acts[other])
          << Switches::of(bits).text() << " and " << Switches::of(other).text() << ": " << counts[bits].first
          << " nodes, " << counts[bits].second << " matrices";
    }
}

TEST_P(Fusion, NodesGrowWithEachSwitch) {
  const SimulatedMachine machine({.n_cards = 0});
  const Plan plan = SimulatedMachine::all_on(0, 0);
  const auto model = load_model(*golden_, machine, plan, {});
  const Hparams& h = model->hparams();
  const auto nodes = [&](const Switches& switches) {
    return run(*model, machine, plan, *golden_, context_params(switches)).nodes;
  };
  const std::uint64_t whole = nodes({});
  EXPECT_EQ(nodes({.up_gate = false}) > whole, has_dense_ffn(*model));
  EXPECT_EQ(nodes({.experts = false}) > whole, h.has_experts());
  EXPECT_EQ(nodes({.sum = false}) > whole, h.has_experts());
}

INSTANTIATE_TEST_SUITE_P(Models, Fusion,
                         testing::Values("llama", "llama-q4_k", "qwen2", "qwen3", "mixtral", "qwen3moe",
                                         "qwen3moe-q8_0", "glm4moe", "qwen2moe", "gpt-oss", "gemma3"),
                         test_name);

/// Lines of the log while it lives.
class LogLines {
 public:
  LogLines() {
    lines().clear();
    ggml::set_log_sink([](ggml::LogLevel, std::string_view line, void*) { lines().emplace_back(line); }, nullptr);
  }
  ~LogLines() { ggml::set_log_sink(nullptr, nullptr); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  [[nodiscard]] static std::size_t with(const std::string& part) {
    return static_cast<std::size_t>(std::count_if(
        lines().begin(), lines().end(), [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }

 private:
  static std::vector<std::string>& lines() {
    static std::vector<std::string> instance;
    return instance;
  }
};

class Merging : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = load("qwen3moe-q8_0");
    ASSERT_NE(golden_, nullptr);
  }
  static constexpr Switches kBoth{.merge_qkv = true, .merge_up_gate = true};
  std::unique_ptr<Golden> golden_;
};

TEST_F(Merging, MakesOneTensorOfThree) {
  const SimulatedMachine machine({.n_cards = 0});
  for (const LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
    const LogLines log;
    const auto model = load_model(*golden_, machine, SimulatedMachine::all_on(0, 0), kBoth, mode);
    for (const TensorSet& layer : model->weights().layers) {
      ASSERT_TRUE(layer[Role::attn_qkv] && layer[Role::ffn_gate_up_exps]);
      EXPECT_FALSE(layer[Role::attn_q] || layer[Role::attn_k] || layer[Role::attn_v]);
      EXPECT_FALSE(layer[Role::ffn_gate_exps] || layer[Role::ffn_up_exps]);
      EXPECT_EQ(layer[Role::attn_qkv].weight->placements.front().kind, ggml::BufferKind::host_pageable);
    }
    EXPECT_EQ(log.with("-mqkv: attn_qkv of layers"), 1u);
    EXPECT_EQ(log.with("-muge: ffn_gate_up_exps of layers"), 1u);
  }
}

TEST_F(Merging, LeavesApartWhatLiesOnDifferentDevicesAndSaysSo) {
  const SimulatedMachine machine({.n_cards = 1});
  const auto plain = load_model(*golden_, machine, SimulatedMachine::all_on(0, 0), {});
  const auto n_layer = plain->info().n_layer;
  Plan plan = SimulatedMachine::all_on(1, n_layer);
  SimulatedMachine::put(plan, "blk.1.attn_k.weight", 0);
  SimulatedMachine::put(plan, "blk.0.ffn_up_exps.weight", 0);
  SimulatedMachine::put(plan, "blk.1.ffn_gate_exps.weight", 0);
  SimulatedMachine::put(plan, "blk.1.ffn_up_exps.weight", 0);
  const LogLines log;
  const auto model = load_model(*golden_, machine, plan, kBoth);
  const std::vector<TensorSet>& layers = model->weights().layers;
  EXPECT_TRUE(layers[0][Role::attn_qkv] && !layers[1][Role::attn_qkv]);
  EXPECT_TRUE(!layers[0][Role::ffn_gate_up_exps] && layers[1][Role::ffn_gate_up_exps]);
  // It lies where its parts were put.
  EXPECT_EQ(layers[0][Role::attn_qkv].weight->placements.front().kind, ggml::BufferKind::device);
  EXPECT_EQ(layers[1][Role::ffn_gate_up_exps].weight->placements.front().kind, ggml::BufferKind::host_pageable);
  EXPECT_EQ(log.with("-mqkv: layers 1 stay as they are: they lie on different devices"), 1u);
  EXPECT_EQ(log.with("-muge: layers 0 stay as they are: they lie on different devices"), 1u);
  const Outcome expected = run(*plain, machine, SimulatedMachine::all_on(0, n_layer), *golden_, context_params({}));
  const Outcome got = run(*model, machine, plan, *golden_, context_params(Switches::of(5)));
  EXPECT_LE(largest_difference(got.rows, expected.rows), tolerance(*golden_));
}

TEST_F(Merging, OfAModelThatHasNoneIsOneLine) {
  const auto dense = load("llama");
  ASSERT_NE(dense, nullptr);
  const SimulatedMachine machine({.n_cards = 0});
  const LogLines log;
  (void)load_model(*dense, machine, SimulatedMachine::all_on(0, 0), {.merge_up_gate = true});
  EXPECT_EQ(log.with("-muge has no effect"), 1u);
}

TEST_F(Merging, SaysAtTheStartWhatIsFused) {
  const SimulatedMachine machine({.n_cards = 0});
  const Plan plan = SimulatedMachine::all_on(0, 0);
  const auto model = load_model(*golden_, machine, plan, {});
  const LogLines log;
  { const Context context(*model, machine.devices(), plan, context_params({})); }
  EXPECT_EQ(log.with("fused_moe = 1"), 1u);
  EXPECT_EQ(log.with("fused_up_gate = 1"), 1u);
  { const Context context(*model, machine.devices(), plan, context_params({.experts = false, .up_gate = false})); }
  EXPECT_EQ(log.with("fused_moe = 0"), 1u);
  EXPECT_EQ(log.with("fused_up_gate = 0"), 1u);
}

bool is_interleaved(const ggml::Weight& weight) {
  return ggml::type_info(weight.type).rows_per_group > 1;
}

class RepackedModel : public testing::TestWithParam<const char*> {};

TEST_P(RepackedModel, GivesTheSameLogitsWithInterleavedRows) {
  const auto golden = load(GetParam());
  if (golden == nullptr) GTEST_SKIP() << "no golden file";
  const SimulatedMachine machine({.n_cards = 0});
  const Plan plan = SimulatedMachine::all_on(0, 0);
  const auto plain = load_model(*golden, machine, plan, {});
  const Outcome expected = run(*plain, machine, plan, *golden, context_params({}));
  for (const bool merged : {false, true}) {
    const LogLines log;
    const auto model =
        load_model(*golden, machine, plan, {.merge_qkv = merged, .merge_up_gate = merged, .repack = true});
    const Outcome got = run(*model, machine, plan, *golden, context_params({}));
    EXPECT_LE(largest_difference(got.rows, expected.rows), tolerance(*golden));
    int repacked = 0;
    for (const TensorSet& layer : model->weights().layers)
      for (const TensorWithParts& parts : layer.parts)
        if (parts.weight != nullptr && is_interleaved(*parts.weight)) ++repacked;
    EXPECT_GE(repacked, model->info().n_layer);
    EXPECT_EQ(log.with("-rtr: repacked tensors="), 1u);
    EXPECT_EQ(log.with("could have computed long prompts"), 0u);  // there is no card
    EXPECT_FALSE(is_interleaved(*model->weights().global[Role::token_embd].weight));
    for (const ggml::Weight& weight : model->weights().tensors)
      EXPECT_NE(weight.placements.front().kind, ggml::BufferKind::mapping) << weight.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, RepackedModel,
                         testing::Values("llama-q4_0", "llama-q8_0", "llama-q4_k", "qwen3moe-q8_0"), test_name);

TEST(Repacking, CountsWhatACardCouldHaveComputedAndLeavesItsTensorsAlone) {
  const auto golden = load("qwen3moe-q8_0");
  ASSERT_NE(golden, nullptr);
  const SimulatedMachine machine({.n_cards = 1, .lacks = {"q8_0_r8"}});
  Plan plan = SimulatedMachine::all_on(1, 2);
  SimulatedMachine::put(plan, "blk.1.ffn_up_exps.weight", 0);
  SimulatedMachine::put(plan, "blk.0.ffn_down_exps.weight", 0);
  const LogLines log;
  const auto model = load_model(*golden, machine, plan, {.repack = true});
  for (const ggml::Weight& weight : model->weights().tensors) {
    const bool on_cpu = weight.name == "blk.1.ffn_up_exps.weight" || weight.name == "blk.0.ffn_down_exps.weight";
    EXPECT_EQ(is_interleaved(weight), on_cpu) << weight.name;
  }
  EXPECT_EQ(log.with("-rtr: repacked tensors=2 "), 1u);
  EXPECT_EQ(log.with("CUDA0 could have computed long prompts with 2 of the repacked tensors"), 1u);
  EXPECT_EQ(log.with("a lower -ncmoe"), 1u);
}

}  // namespace
}  // namespace llama::golden
