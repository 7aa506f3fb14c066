#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "ggml/gguf.h"
#include "llama/context.h"
#include "models/golden.h"
#include "models/simulated_machine.h"
#include "test_support.h"

/// Prompts with weights of host memory that are sent to a card.
namespace llama::golden {
namespace {

using Machine = SimulatedMachine;

/// A model of which every block comes `times` times, one after another.
std::string deepened(const std::string& path, int times, const std::filesystem::path& folder) {
  const ggml::gguf::File file = ggml::gguf::File::open(path);
  const ggml::gguf::Reader reader(path, ggml::gguf::ReadMode::buffered);
  std::string to = (folder / "deep.gguf").string();
  ggml::gguf::Writer writer(to);
  int n_layer = 0;
  for (const auto& [key, value] : file.metadata().entries()) {
    writer.metadata.set(key, value);
    if (!key.ends_with(".block_count")) continue;
    n_layer = static_cast<int>(*file.metadata().get_u32(key));
    writer.metadata.set_u32(key, static_cast<std::uint32_t>(n_layer * times));
  }
  std::vector<const ggml::gguf::TensorInfo*> order;
  for (const ggml::gguf::TensorInfo& tensor : file.tensors()) {
    const bool in_block = tensor.name.starts_with("blk.");
    const std::size_t dot = tensor.name.find('.', 4);
    for (int i = 0; i < (in_block ? times : 1); ++i) {
      std::string name = tensor.name;
      if (in_block) name = "blk." + std::to_string(std::stoi(name.substr(4)) + i * n_layer) + name.substr(dot);
      writer.add_tensor(std::move(name), tensor.type, tensor.shape);
      order.push_back(&tensor);
    }
  }
  writer.begin_data();
  std::vector<std::byte> bytes;
  for (const ggml::gguf::TensorInfo* tensor : order) {
    bytes.resize(tensor->bytes);
    reader.read(tensor->offset, bytes);
    writer.write(bytes);
  }
  writer.finish();
  return to;
}

/// The routed experts of a layer, all layers being equal.
struct Experts {
  std::uint64_t bytes = 0, of_one = 0;
};
Experts put_experts_on_cpu(const std::string& path, Plan& plan) {
  Experts experts;
  std::uint64_t n_layer = 0;
  const ggml::gguf::File file = ggml::gguf::File::open(path);
  for (const auto& tensor : file.tensors()) {
    if (tensor.name.find("_exps.") == std::string::npos) continue;
    Machine::put(plan, tensor.name, 0);
    experts.bytes += tensor.bytes;
    experts.of_one += tensor.bytes / static_cast<std::uint64_t>(tensor.shape[2]);
    if (tensor.name.find("ffn_down_exps") != std::string::npos) ++n_layer;
  }
  experts.bytes /= n_layer;
  experts.of_one /= n_layer;
  return experts;
}

std::vector<Token> tokens_of(const Golden& golden, std::size_t n) {
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<Token>((static_cast<std::size_t>(golden.prompt[i % golden.prompt.size()]) + i / 7) %
                                        static_cast<std::size_t>(golden.n_vocab)));
  return tokens;
}

std::vector<float> last_logits(Context& context, std::span<const Token> tokens) {
  const SeqId seq = context.create_sequence();
  const StepSequence s{seq, tokens, Outputs::last, nullptr};
  const StepResult& result = context.run({{&s, 1}});
  std::vector<float> logits(result.sequences[0].logits.begin(), result.sequences[0].logits.end());
  context.remove_sequence(seq);
  return logits;
}

ContextParams context_params(int n_tokens, int n_ubatch) {
  ContextParams params;
  params.n_ctx = n_tokens;
  params.n_batch = n_tokens;
  params.n_ubatch = n_ubatch;
  params.offload.device = ggml::DeviceId(1);
  params.offload.dense_from = params.offload.experts_from = 2;
  return params;
}

class ExpertsOnCpu : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = load("mixtral");
    ASSERT_NE(golden_, nullptr);
  }
  std::unique_ptr<Golden> golden_;
};

TEST_F(ExpertsOnCpu, AreSentOnceForALongPromptAndNeverForOneToken) {
  constexpr int kTokens = 8192, kUbatch = 512;
  const tandem::TempDir folder;
  const std::string path = deepened(golden_->path, 2, folder.path());
  const Machine machine({});
  Plan plan = Machine::all_on(1, 4);
  const Experts experts = put_experts_on_cpu(path, plan);
  ModelParams model_params;
  model_params.path = path;
  const auto model = Model::load(model_params, machine.devices(), plan, {});
  ContextParams params = context_params(kTokens, kUbatch);
  params.n_ctx = kTokens + 64;
  Context context(*model, machine.devices(), plan, params);
  const std::vector<Token> tokens = tokens_of(*golden_, kTokens);
  const SeqId seq = context.create_sequence();
  StepSequence s{seq, tokens, Outputs::last, nullptr};
  context.run({{&s, 1}});
  const ggml::LinkUse prompt = context.stats().prompt.scheduler.links[1];
  // Of the last layer one row is computed, where its weights are.
  EXPECT_EQ(prompt.weight_bytes, 3 * experts.bytes);
  // What else crosses for the prompt: hardly more than its tokens.
  EXPECT_LE(prompt.bytes_in - prompt.weight_bytes, 1'000'000U);
  for (int i = 0; i < 4; ++i) {
    s.tokens = {tokens.data() + i, 1};
    context.run({{&s, 1}});
  }
  EXPECT_EQ(context.stats().decode.steps, 4U);
  EXPECT_EQ(context.stats().decode.scheduler.links[1].weight_bytes, 0U);
  EXPECT_EQ(context.stats().decode.scheduler.links[1].weight_copies, 0U);
  std::printf("%llu bytes of weights for %d tokens in micro-batches of %d, %llu bytes in all\n",
              static_cast<unsigned long long>(prompt.weight_bytes), kTokens, kUbatch,
              static_cast<unsigned long long>(prompt.bytes_in));
}

TEST_F(ExpertsOnCpu, OnlyThoseThatAPromptUsesAreSentAndEachOnce) {
  Plan plan = Machine::all_on(1, 2);
  const Experts experts = put_experts_on_cpu(golden_->path, plan);
  constexpr std::size_t kTokens = 5;
  ASSERT_FALSE(golden_->experts.empty());
  std::set<int> used;  // of the first layer; of the other one a single row is computed
  for (std::size_t row = 0; row < kTokens; ++row)
    used.insert(golden_->experts.at(0)[row].begin(), golden_->experts.at(0)[row].end());
  ModelParams model_params;
  model_params.path = golden_->path;
  const std::span<const Token> tokens(golden_->prompt.data(), kTokens);
  const Machine cpu({.n_cards = 0});
  const auto on_cpu = Model::load(model_params, cpu.cpu(), {});
  for (const int n_ubatch : {8, 2}) {
    for (const bool only_used : {true, false}) {
      const Machine machine({.seed = 5});
      ContextParams params = context_params(64, n_ubatch);
      params.offload.only_used_experts = only_used;
      const auto model = Model::load(model_params, machine.devices(), plan, {});
      Context context(*model, machine.devices(), plan, params);
      Context alone(*on_cpu, cpu.cpu(), params);
      EXPECT_EQ(last_logits(context, tokens), last_logits(alone, tokens));
      EXPECT_EQ(context.stats().prompt.scheduler.links[1].weight_bytes,
                only_used ? used.size() * experts.of_one : experts.bytes)
          << "micro-batches of " << n_ubatch << (only_used ? ", used experts" : ", all experts");
    }
  }
}

/// What -op and the batch sizes of the known rules say of a step is what its link carries.
TEST_F(ExpertsOnCpu, AreSentAsTheRulesSay) {
  Plan plan = Machine::all_on(1, 2);
  const Experts experts = put_experts_on_cpu(golden_->path, plan);
  ModelParams model_params;
  model_params.path = golden_->path;
  constexpr int kTokens = 16, kSmall = 8, kFrom = 9;
  const std::vector<Token> tokens = tokens_of(*golden_, kTokens);
  const auto sent = [&](int n_ubatch, const std::function<void(OpOffload&)>& change) {
    const Machine machine({.seed = 5});
    ContextParams params = context_params(64, n_ubatch);
    params.offload.only_used_experts = false;
    params.offload.experts_from = kFrom;
    change(params.offload);
    const auto model = Model::load(model_params, machine.devices(), plan, {});
    Context context(*model, machine.devices(), plan, params);
    (void)last_logits(context, tokens);
    return context.stats().prompt.scheduler.links[1].weight_bytes;
  };
  const auto by_ubatch = [](OpOffload& offload) { offload.by_ubatch = true; };
  EXPECT_EQ(sent(kSmall, [](OpOffload&) {}), experts.bytes);  // the step is large enough
  EXPECT_EQ(sent(kSmall, by_ubatch), 0U);                     // its micro-batches are not
  EXPECT_EQ(sent(kTokens, by_ubatch), experts.bytes);
  EXPECT_EQ(sent(kTokens, [](OpOffload& offload) { offload.experts_from = kTokens + 1; }), 0U);
  EXPECT_EQ(sent(kTokens, [](OpOffload& offload) { offload.experts = offload.experts_up_gate = false; }), 0U);
  // Dense products are none of these.
  EXPECT_EQ(sent(kTokens, [](OpOffload& offload) { offload.dense = offload.dense_up_gate = false; }), experts.bytes);
}

/// How long the link carried weights during a prompt, as a share of the time from its first byte on.
struct LinkTime {
  double share = 0, seconds = 0;
  std::vector<float> logits;
};
LinkTime link_time(const std::string& path, const Golden& golden, bool ahead) {
  constexpr int kTokens = 1024, kUbatch = 64, kLayers = 24;
  Machine::Options options;
  options.time = std::make_shared<ggml::SimulatedTime>();
  options.host.bandwidth = 1e11;
  options.host.arithmetic = 1e13;
  options.card_bandwidth = 5e10;
  options.card_link = 2e8;  // so slow that a layer's experts take somewhat longer than its work
  const Machine machine(options);
  Plan plan = Machine::all_on(1, kLayers);
  (void)put_experts_on_cpu(path, plan);
  ModelParams model_params;
  model_params.path = path;
  const auto model = Model::load(model_params, machine.devices(), plan, {});
  ContextParams params = context_params(kTokens, kUbatch);
  params.offload.ahead = ahead;
  Context context(*model, machine.devices(), plan, params);
  (void)options.time->take_trace();
  LinkTime result;
  result.logits = last_logits(context, tokens_of(golden, kTokens));
  double busy = 0, begin = 1e30, end = 0, computing = 0;
  for (const auto& span : options.time->take_trace()) {
    const bool is_link = span.lane == (ahead ? "CUDA0 weights" : "CUDA0 link");
    if (span.lane == "CUDA0") computing += span.end - span.begin;
    end = std::max(end, span.end);
    if (!is_link) continue;
    busy += span.end - span.begin;
    begin = std::min(begin, span.begin);
  }
  result.share = busy / (end - begin);
  result.seconds = end - begin;
  std::printf("%s sending ahead: %.3f ms, link busy %.3f, card busy %.3f\n", ahead ? "with" : "without",
              1e3 * result.seconds, result.share, computing / result.seconds);
  return result;
}

TEST_F(ExpertsOnCpu, KeepTheLinkBusyWhereTheyAreSentAhead) {
  const tandem::TempDir folder;
  const std::string path = deepened(golden_->path, 12, folder.path());
  const LinkTime ahead = link_time(path, *golden_, true);
  const LinkTime in_turn = link_time(path, *golden_, false);
  EXPECT_EQ(ahead.logits, in_turn.logits);
  EXPECT_GE(ahead.share, 0.9);
  EXPECT_LE(in_turn.share, 0.75);
  EXPECT_LE(ahead.seconds, 0.8 * in_turn.seconds);
}

TEST(LayersOnCpu, AreComputedOnACardWhereverTheirStateIs) {
  for (const char* name : {"llama-q4_0", "qwen2", "gemma3", "qwen3moe-q8_0", "mixtral"}) {
    const auto golden = load(name);
    if (golden == nullptr) continue;
    ModelParams model_params;
    model_params.path = golden->path;
    const Machine cpu({.n_cards = 0});
    const auto on_cpu = Model::load(model_params, cpu.cpu(), {});
    const Machine machine({.seed = 7});
    const int n_layer = on_cpu->info().n_layer;
    const Plan plan = Machine::all_on(0, n_layer);
    const auto model = Model::load(model_params, machine.devices(), plan, {});
    const ContextParams params = context_params(64, 16);
    Context context(*model, machine.devices(), plan, params);
    Context alone(*on_cpu, cpu.cpu(), params);
    EXPECT_EQ(last_logits(context, golden->prompt), last_logits(alone, golden->prompt)) << name;
    EXPECT_GT(context.stats().prompt.scheduler.links[1].weight_bytes, 0U) << name;
  }
}

}  // namespace
}  // namespace llama::golden
