#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <random>
#include <string>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "llama/context.h"
#include "model/hparams.h"
#include "model/weights.h"
#include "models/golden.h"
#include "models/random_plan.h"
#include "models/simulated_machine.h"
#include "test_support.h"

/// Whole models over a CPU and simulated cards: any plan gives what the CPU alone gives.
namespace llama::golden {
namespace {

using Machine = SimulatedMachine;

ContextParams context_params() {
  ContextParams params;
  params.n_ctx = 512;
  params.n_batch = params.n_ubatch = 64;
  params.n_seq_max = 2;
  params.k_type = params.v_type = ggml::DType::f32;
  return params;
}

std::vector<Rows> run_cases(Context& context, const Golden& golden) {
  std::vector<Rows> cases(3, Rows(kRows));
  run_batch(context, golden, cases[0]);
  run_chunks(context, golden, cases[1]);
  run_pair(context, golden, cases[2]);
  context.check_integrity();
  return cases;
}

struct OnCpu {
  std::vector<Rows> cases;
  int n_layer = 0;
};

OnCpu run_on_cpu(const Golden& golden, const ContextParams& params) {
  const Machine machine({.n_cards = 0});
  ModelParams model_params;
  model_params.path = golden.path;
  const auto model = Model::load(model_params, machine.cpu(), {});
  Context context(*model, machine.cpu(), params);
  return {run_cases(context, golden), model->info().n_layer};
}

/// Largest and mean distance of two runs, over all logits.
Difference distance(const std::vector<Rows>& a, const std::vector<Rows>& b) {
  Difference worst;
  for (std::size_t c = 0; c < a.size(); ++c) {
    std::vector<float> expected;
    Rows rows;
    for (std::size_t r = 0; r < a[c].size(); ++r) {
      if (b[c][r].empty()) continue;
      rows.push_back(a[c][r]);
      expected.insert(expected.end(), b[c][r].begin(), b[c][r].end());
    }
    const Difference d = compare(rows, expected, static_cast<int>(rows.front().size()));
    worst.max = std::max(worst.max, d.max);
    worst.rms = std::max(worst.rms, d.rms);
  }
  return worst;
}

class AnyPlan : public testing::TestWithParam<const char*> {};

TEST_P(AnyPlan, GivesTheLogitsOfTheCpuAlone) {
  const auto golden = load(GetParam());
  if (golden == nullptr) GTEST_SKIP() << "no golden file";
  const int n_layer = run_on_cpu(*golden, context_params()).n_layer;
  static const std::vector<std::vector<std::string>> kLacks{{},
                                                            {},
                                                            {},
                                                            {"moe_ffn", "norm"},
                                                            {"add"},
                                                            {"rope", "ffn", "linear"},
                                                            {"sample"},
                                                            {"attention", "mla", "delta_net", "qkv"},
                                                            {"top_k", "moe_route"},
                                                            {"conv1d", "attn_dense", "attention", "mla"}};
  constexpr int kRounds = 8;
  std::seed_seq seed(golden->name.begin(), golden->name.end());
  std::mt19937 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    Machine::Options options;
    options.n_cards = 1 + static_cast<int>(random() % 4);
    options.seed = round % 2 == 0 ? 0 : random() + 1;
    options.lacks = kLacks[random() % kLacks.size()];
    const Machine machine(options);
    PlanMaker maker(*golden, options.n_cards + 1, random);
    ModelParams model_params;
    model_params.path = golden->path;
    if (round % 3 == 2) model_params.load_mode = LoadMode::read;
    std::string lacks;
    for (const std::string& name : options.lacks) lacks += " -" + name;
    const RandomPlan made = maker.make(n_layer);
    ContextParams params = context_params();
    params.n_ubatch = std::array{64, 16, 5, 3}[random() % 4];
    params.flash_attention = random() % 3 != 0;
    if (random() % 3 == 0) params.mla = static_cast<int>(random() % 4);
    params.fused_experts = random() % 4 != 0;
    params.fused_up_gate = random() % 4 != 0;
    params.fused_expert_sum = random() % 4 != 0;
    // Every other time weights of the CPU are sent to a card for prompts.
    OpOffload offload;
    if (random() % 2 == 0)
      offload.device = ggml::DeviceId(1 + static_cast<int>(random() % static_cast<unsigned>(options.n_cards)));
    offload.dense_from = static_cast<int>(random() % 12);
    offload.experts_from = static_cast<int>(random() % 12);
    offload.by_ubatch = random() % 2 == 0;
    offload.only_used_experts = random() % 2 == 0;
    offload.ahead = random() % 4 != 0;
    const bool merges = random() % 3 == 0;
    const OnCpu expected = run_on_cpu(*golden, params);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + made.what + lacks);
    model_params.merge_qkv = model_params.merge_up_gate = merges;
    const auto model = Model::load(model_params, machine.devices(), made.plan, {});
    params.offload = offload;
    Context context(*model, machine.devices(), made.plan, params);
    const std::vector<Rows> got = run_cases(context, *golden);
    const Difference d = distance(got, expected.cases);
    if (made.whole_layers && options.lacks.empty() && !merges) {
      EXPECT_EQ(d.max, 0.0);
    } else {
      EXPECT_LE(d.max, golden->all_f32() ? 1e-4 : golden->f32_kv.max);
      EXPECT_LE(d.rms, golden->all_f32() ? 2e-5 : golden->f32_kv.rms);
    }
  }
}

/// Halves of the layers on two cards; of the feed-forward the norm, the router, the shared experts and the experts'
/// gate go with their layer, everything else was put on the CPU by a pattern that came last.
Plan halved_experts(const Golden& golden, int n_layer) {
  Plan plan = Machine::all_on(1, n_layer);
  for (int i = n_layer / 2; i < n_layer; ++i)
    plan.layer_device[static_cast<std::size_t>(i)] = plan.kv_device[static_cast<std::size_t>(i)] = ggml::DeviceId(2);
  const auto file = ggml::gguf::File::open(golden.path);
  for (const auto& tensor : file.tensors()) {
    const std::string& name = tensor.name;
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (has("ffn") && !has("ffn_norm") && !has("gate_inp") && !has("shexp") && !has("gate_exps"))
      Machine::put(plan, name, 0);
  }
  return plan;
}

/// The same with the gates on the CPU too.
Plan experts_on_cpu(const Golden& golden, int n_layer) {
  Plan plan = halved_experts(golden, n_layer);
  const auto file = ggml::gguf::File::open(golden.path);
  for (const auto& tensor : file.tensors())
    if (tensor.name.find("gate_exps") != std::string::npos) Machine::put(plan, tensor.name, 0);
  return plan;
}

class SplitExperts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = load(GetParam());
    if (golden_ == nullptr) GTEST_SKIP() << "no golden file";
    n_layer_ = static_cast<int>(model_on(cpu_only_, SimulatedMachine::all_on(0, 0))->info().n_layer);
  }
  [[nodiscard]] std::unique_ptr<Model> model_on(const Machine& machine, const Plan& plan) const {
    ModelParams params;
    params.path = golden_->path;
    return Model::load(params, machine.devices(), plan, {});
  }
  /// Decodes some tokens; returns the statistics of the last.
  static ContextStats decode(Context& context, int n) {
    const SeqId seq = context.create_sequence();
    const Token prompt[] = {5, 6, 7, 8, 9};
    const StepSequence first{seq, prompt, Outputs::none, nullptr};
    context.run({{&first, 1}});
    for (Token token = 0; token < n; ++token) {
      const StepSequence s{seq, {&token, 1}, Outputs::last, nullptr};
      context.run({{&s, 1}});
    }
    context.remove_sequence(seq);
    return context.stats();
  }

  Machine cpu_only_{{.n_cards = 0}};
  std::unique_ptr<Golden> golden_;
  int n_layer_ = 0;
};

TEST_P(SplitExperts, CopyActivationsOnlyAndFewSplitsPerLayer) {
  const Machine machine({.n_cards = 2, .seed = 77});
  const Plan plan = halved_experts(*golden_, n_layer_);
  const auto model = model_on(machine, plan);
  static int told = 0;
  told = 0;
  ggml::set_log_sink(
      [](ggml::LogLevel, std::string_view line, void*) {
        if (line.find("each projection runs where its tensor is") != std::string_view::npos) ++told;
      },
      nullptr);
  Context context(*model, machine.devices(), plan, context_params());
  ggml::set_log_sink(nullptr, nullptr);
  EXPECT_EQ(told, 1);  // one line for all layers
  const ContextStats stats = decode(context, 3);
  const Hparams& h = model->hparams();
  // What a layer may send and get back for one token: its input, ids and weights, the gate's products (or what a dense
  // layer has instead), and the sum. The stream crosses between the cards, and to the head.
  const auto floats = [](int n) { return static_cast<std::uint64_t>(n) * sizeof(float); };
  const std::uint64_t out = floats(h.n_embd + 2 * h.experts.used + h.experts.used * h.experts.n_ff);
  const std::uint64_t in = floats(h.n_embd);
  EXPECT_GT(stats.scheduler.bytes(), 0u);
  EXPECT_LE(stats.scheduler.bytes(), static_cast<std::uint64_t>(n_layer_) * (out + in) + 4 * floats(h.n_embd))
      << context.sched_report();
  // Card, CPU, card for each layer, the shared experts by themselves, and input, head and a change of cards.
  const int per_layer = h.experts.n_ff_shared > 0 ? 3 : 2;
  EXPECT_LE(stats.scheduler.splits, static_cast<std::uint64_t>(per_layer * n_layer_ + 5)) << context.sched_report();
  const std::vector<Rows> got = run_cases(context, *golden_);
  const OnCpu expected = run_on_cpu(*golden_, context_params());
  EXPECT_LE(distance(got, expected.cases).max, golden_->all_f32() ? 1e-4 : golden_->f32_kv.max);
}

TEST_P(SplitExperts, AreHardlySlowerThanExpertsOnTheCpu) {
  const auto seconds_of = [&](const Plan& plan) {
    Machine::Options options;
    options.n_cards = 2;
    options.time = std::make_shared<ggml::SimulatedTime>();
    // As small beside a card as these experts are beside real ones.
    options.host.bandwidth = 1e8;
    options.host.arithmetic = 1e10;
    const Machine machine(options);
    const auto model = model_on(machine, plan);
    Context context(*model, machine.devices(), plan, context_params());
    (void)decode(context, 1);
    const double before = options.time->host();
    (void)decode(context, 8);
    return options.time->host() - before;
  };
  EXPECT_LE(seconds_of(halved_experts(*golden_, n_layer_)), 1.05 * seconds_of(experts_on_cpu(*golden_, n_layer_)));
}

double overlap(const ggml::SimulatedTime::Span& a, const ggml::SimulatedTime::Span& b) {
  return std::max(0.0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

/// "3" of "ffn_moe_out-3"; of a run of nodes the layer of the last.
std::string layer_of(const std::string& name) {
  return name.substr(name.rfind('-') + 1);
}

/// Where card and CPU both have work in a layer, they have it at the same time, whichever of them takes longer.
TEST_P(SplitExperts, WorkBesideTheSharedOnes) {
  bool cpu_was_shorter = false, cpu_was_longer = false;
  for (const double host_bandwidth : {1e8, 1e13}) {
    Machine::Options options;
    options.n_cards = 2;
    options.time = std::make_shared<ggml::SimulatedTime>();
    options.host.bandwidth = host_bandwidth;
    options.host.arithmetic = 100 * host_bandwidth;
    const Machine machine(options);
    const Plan plan = experts_on_cpu(*golden_, n_layer_);
    const auto model = model_on(machine, plan);
    if (model->hparams().experts.n_ff_shared == 0) GTEST_SKIP() << "no shared experts";
    Context context(*model, machine.devices(), plan, context_params());
    (void)decode(context, 2);
    (void)options.time->take_trace();
    (void)decode(context, 4);
    std::vector<ggml::SimulatedTime::Span> on_cpu, shared;
    for (const auto& span : options.time->take_trace()) {
      if (span.lane == "CPU") on_cpu.push_back(span);
      if (span.name.rfind("ffn_shexp", 0) == 0 || span.name.rfind("ffn_shared", 0) == 0) shared.push_back(span);
    }
    double together = 0, shorter = 0;
    for (const auto& a : shared) {
      double most = 0, cpu_seconds = 0;  // of the CPU's work in this layer and step: what lies nearest to it
      for (const auto& b : on_cpu) {
        if (layer_of(a.name) != layer_of(b.name) || overlap(a, b) <= most) continue;
        most = overlap(a, b);
        cpu_seconds = b.end - b.begin;
      }
      ASSERT_GT(cpu_seconds, 0) << a.name << " runs while the CPU has nothing to do";
      (cpu_seconds < a.end - a.begin ? cpu_was_shorter : cpu_was_longer) = true;
      together += most;
      shorter += std::min(cpu_seconds, a.end - a.begin);
    }
    ASSERT_GT(shared.size(), 0u);
    EXPECT_GE(together, 0.9 * shorter) << "host reads " << host_bandwidth << " bytes a second";
  }
  EXPECT_TRUE(cpu_was_shorter && cpu_was_longer);
}

/// -nkvo: the layers stay on the card, and of each the attention runs where its cells are.
TEST_P(SplitExperts, KeepAttentionOnTheCpuWhereTheCacheIs) {
  Machine::Options options;
  options.time = std::make_shared<ggml::SimulatedTime>();
  const Machine machine(options);
  Plan plan = Machine::all_on(1, n_layer_);
  std::fill(plan.kv_device.begin(), plan.kv_device.end(), ggml::DeviceId(0));
  const auto model = model_on(machine, plan);
  Context context(*model, machine.devices(), plan, context_params());
  (void)decode(context, 2);
  (void)options.time->take_trace();
  constexpr int kSteps = 3;
  const ContextStats stats = decode(context, kSteps);
  std::map<std::string, int> on_cpu, on_card;  // by the last node of a split
  for (const auto& span : options.time->take_trace())
    ++(span.lane == "CPU" ? on_cpu : on_card)[span.name.substr(span.name.rfind(' ') + 1)];
  for (int i = 0; i < n_layer_; ++i) {
    const std::string attention = "attn_heads-" + std::to_string(i);
    EXPECT_GE(on_cpu[attention], kSteps) << attention;
    EXPECT_EQ(on_card[attention], 0);
  }
  // One query, key and value, and one result a layer: no cells.
  const Hparams& h = model->hparams();
  const int width = h.layers.front().n_head * h.layers.front().dk;
  EXPECT_LE(stats.scheduler.bytes(),
            static_cast<std::uint64_t>(n_layer_) * 4 * static_cast<std::uint64_t>(width) * sizeof(float) +
                4 * sizeof(float) * static_cast<std::uint64_t>(h.n_embd));
}

TEST(Encoder, GivesTheSameEmbeddingsOverSeveralDevices) {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data" / "models" / "bert.gguf")) GTEST_SKIP() << "no encoder";
  ModelParams model_params;
  model_params.path = (*shared / "data" / "models" / "bert.gguf").string();
  const auto embed = [&](const Machine& machine, const Plan& plan) {
    const auto model = Model::load(model_params, machine.devices(), plan, {});
    Context context(*model, machine.devices(), plan, context_params());
    std::vector<float> all;
    for (int round = 0; round < 2; ++round) {
      const SeqId a = context.create_sequence(), b = context.create_sequence();
      const Token first[] = {2, 5, 9, 11, 3}, second[] = {2, 7, 3};
      const StepSequence both[] = {{a, first, Outputs::last, nullptr}, {b, second, Outputs::last, nullptr}};
      for (const StepResult::Sequence& s : context.run({both}).sequences)
        all.insert(all.end(), s.embeddings.begin(), s.embeddings.end());
      context.remove_sequence(a);
      context.remove_sequence(b);
    }
    return all;
  };
  const Machine alone({.n_cards = 0});
  const std::vector<float> expected = embed(alone, Machine::all_on(0, 0));
  const Machine machine({.n_cards = 2, .seed = 9, .lacks = {"pool"}});
  Plan plan = Machine::all_on(1, 64);
  plan.layer_device[1] = plan.kv_device[1] = ggml::DeviceId(2);
  plan.input_device = ggml::DeviceId(0);
  EXPECT_EQ(embed(machine, plan), expected);
}

/// Several ubatches of a prompt over two cards that have half of the layers each.
TEST(TwoCards, WorkOnNeighbouringUbatchesAtOneTime) {
  const auto golden = load("llama");
  ASSERT_NE(golden, nullptr);
  Machine::Options options;
  options.n_cards = 2;
  options.time = std::make_shared<ggml::SimulatedTime>();
  options.host.bandwidth = 1e11;
  options.host.arithmetic = 1e13;
  options.card_bandwidth = 1e8;  // so slow that their work counts, not its launching
  const Machine machine(options);
  Plan plan = Machine::all_on(1, 2);
  plan.layer_device[1] = plan.kv_device[1] = ggml::DeviceId(2);
  plan.output_device = ggml::DeviceId(2);
  plan.input_device = ggml::DeviceId(0);
  ModelParams model_params;
  model_params.path = golden->path;
  const auto model = Model::load(model_params, machine.devices(), plan, {});
  ContextParams params = context_params();
  params.n_ubatch = 4;
  Context context(*model, machine.devices(), plan, params);
  const auto prompt = [&] {
    const SeqId seq = context.create_sequence();
    const StepSequence s{seq, golden->prompt, Outputs::last, nullptr};
    context.run({{&s, 1}});
    context.remove_sequence(seq);
  };
  prompt();
  (void)options.time->take_trace();
  const double before = options.time->host();
  prompt();
  const double taken = options.time->host() - before;
  double busy[2] = {0, 0};
  for (const auto& span : options.time->take_trace()) {
    if (span.lane == "CUDA0") busy[0] += span.end - span.begin;
    if (span.lane == "CUDA1") busy[1] += span.end - span.begin;
  }
  EXPECT_GT(std::min(busy[0], busy[1]), 0.3 * std::max(busy[0], busy[1]));
  EXPECT_LE(taken, 0.75 * (busy[0] + busy[1])) << busy[0] << " and " << busy[1];
}

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = load("llama");
    ASSERT_NE(golden_, nullptr);
    params_.path = golden_->path;
  }
  std::unique_ptr<Golden> golden_;
  ModelParams params_;
};

TEST_F(Devices, WeightsThatDoNotFitAreRefusedBeforeAnythingIsRead) {
  const Machine machine({.n_cards = 1, .card_bytes = 100000});
  std::uint64_t reported = 0;
  try {
    (void)Model::load(params_, machine.devices(), Machine::all_on(1, 2), [&](std::uint64_t done, std::uint64_t) {
      reported += done;
      return true;
    });
    FAIL() << "was loaded";
  } catch (const ggml::DeviceError& error) {
    EXPECT_EQ(error.code(), ggml::ErrorCode::out_of_memory);
    EXPECT_NE(error.message().find("CUDA0"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("100000"), std::string::npos) << error.message();
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_EQ(reported, 0u);
}

TEST_F(Devices, ACacheThatDoesNotFitIsRefused) {
  const Machine machine({.n_cards = 1, .card_bytes = 2 << 20});
  const Plan plan = Machine::all_on(1, 2);
  const auto model = Model::load(params_, machine.devices(), plan, {});
  ContextParams params = context_params();
  params.n_ctx = 1 << 16;
  EXPECT_THROW(Context(*model, machine.devices(), plan, params), ggml::DeviceError);
  EXPECT_NO_THROW(Context(*model, machine.devices(), plan, context_params()));
}

TEST_F(Devices, NothingIsLeftOnACardWhenModelAndContextAreGone) {
  const Machine machine({.n_cards = 1, .card_bytes = 64 << 20});
  const Plan plan = Machine::all_on(1, 2);
  {
    const auto model = Model::load(params_, machine.devices(), plan, {});
    Context context(*model, machine.devices(), plan, context_params());
    EXPECT_LT(machine.devices()[1]->memory().free, machine.devices()[1]->memory().total);
  }
  EXPECT_EQ(machine.devices()[1]->memory().free, machine.devices()[1]->memory().total);
}

TEST_F(Devices, AFailedStepLeavesTheSequencesAsTheyWere) {
  const Machine machine({.n_cards = 1, .seed = 3});
  Plan plan = Machine::all_on(1, 2);
  plan.layer_device[1] = plan.kv_device[1] = ggml::DeviceId(0);
  const auto model = Model::load(params_, machine.devices(), plan, {});
  Context context(*model, machine.devices(), plan, context_params());
  const SeqId seq = context.create_sequence();
  const std::span<const Token> prompt(golden_->prompt);
  const StepSequence s{seq, prompt, Outputs::last, nullptr};
  int asked = 0;
  const ggml::StopToken stop{[](void* n) { return ++*static_cast<int*>(n) > 2; }, &asked};
  EXPECT_THROW(context.run({{&s, 1}}, stop), ggml::Error);
  EXPECT_EQ(context.length(seq), 0);
  context.check_integrity();
  const StepResult& result = context.run({{&s, 1}});
  const auto width = static_cast<std::size_t>(golden_->n_vocab);
  for (std::size_t i = 0; i < width; ++i)
    ASSERT_NEAR(result.sequences[0].logits[i], golden_->exact[(prompt.size() - 1) * width + i], 1e-4f);
}

TEST_F(Devices, SharingShiftingAndCuttingWorkOnACardsMemory) {
  const Machine machine({.n_cards = 2, .seed = 4});
  Plan plan = Machine::all_on(1, 2);
  plan.layer_device[1] = plan.kv_device[1] = ggml::DeviceId(2);
  const auto model = Model::load(params_, machine.devices(), plan, {});
  const auto logits_of = [&](std::span<ggml::Device* const> devices, const Model& m, const Plan& p) {
    Context context(m, devices, p, context_params());
    const SeqId a = context.create_sequence(), b = context.create_sequence();
    const StepSequence first{a, golden_->prompt, Outputs::none, nullptr};
    context.run({{&first, 1}});
    context.share_prefix(b, a, 40);
    context.shift(a, 4, 8);
    context.truncate(b, 20);
    const Token next = 9;
    const StepSequence both[] = {{a, {&next, 1}, Outputs::last, nullptr}, {b, {&next, 1}, Outputs::last, nullptr}};
    const StepResult& result = context.run({both});
    context.check_integrity();
    std::vector<float> all(result.sequences[0].logits.begin(), result.sequences[0].logits.end());
    all.insert(all.end(), result.sequences[1].logits.begin(), result.sequences[1].logits.end());
    return all;
  };
  const Machine alone({.n_cards = 0});
  const auto on_cpu = Model::load(params_, alone.cpu(), {});
  EXPECT_EQ(logits_of(machine.devices(), *model, plan), logits_of(alone.devices(), *on_cpu, Machine::all_on(0, 2)));
}

TEST_F(Devices, ATypeThatACardLacksStaysOnTheCpu) {
  const auto golden = load("llama-q4_0");
  ASSERT_NE(golden, nullptr);
  const Machine machine({.n_cards = 1, .lacks = {"q4_0"}});
  const Plan plan = Machine::all_on(1, run_on_cpu(*golden, context_params()).n_layer);
  ModelParams params;
  params.path = golden->path;
  params.load_mode = LoadMode::read;
  const auto model = Model::load(params, machine.devices(), plan, {});
  for (const ggml::Weight& weight : model->weights().tensors) {
    const bool on_card = std::any_of(weight.placements.begin(), weight.placements.end(),
                                     [](const auto& at) { return at.kind == ggml::BufferKind::device; });
    EXPECT_EQ(on_card, weight.type != ggml::DType::q4_0) << weight.name;
  }
  Context context(*model, machine.devices(), plan, context_params());
  const std::vector<Rows> got = run_cases(context, *golden);
  EXPECT_LE(distance(got, run_on_cpu(*golden, context_params()).cases).max, golden->f32_kv.max);
}

TEST_F(Devices, PlansThatNameOtherDevicesAreOurFault) {
  const Machine machine({.n_cards = 1});
  try {
    (void)Model::load(params_, machine.devices(), Machine::all_on(2, 2), {});
    FAIL() << "was loaded";
  } catch (const ggml::Error& error) {
    EXPECT_EQ(error.code(), ggml::ErrorCode::internal);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AnyPlan,
                         testing::Values("llama", "llama-q4_k", "llama-q8_0", "mixtral", "qwen2", "qwen3", "qwen3moe",
                                         "qwen3moe-q8_0", "qwen3moe-q4_k", "qwen2moe", "gemma2", "gemma3", "glm4",
                                         "glm4moe", "minimax-m2", "deepseek2-lite", "deepseek2-v3",
                                         "deepseek2-v3-split", "gpt-oss", "qwen3next", "qwen35", "qwen35moe", "split3"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Models, SplitExperts,
                         testing::Values("glm4moe", "qwen2moe", "qwen3moe", "qwen3moe-q8_0", "mixtral"), test_name);

}  // namespace
}  // namespace llama::golden
