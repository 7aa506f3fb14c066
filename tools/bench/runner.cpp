#include "runner.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <span>
#include <utility>

#include "common/args/build_info.h"
#include "common/args/tensor_rules.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/context.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;
using llama::Token;

/// One sequence that is filled with the tokens of a text, or with random ones; these are drawn anew for every run of a
/// test.
class Load {
 public:
  Load(llama::Context& context, std::vector<Token> text)
      : context_(context), seq_(context.create_sequence()), text_(std::move(text)) {}

  void clear() { context_.truncate(seq_, 0); }

  void prompt(int n) { evaluate(text_.empty() ? random_tokens(n) : text_); }
  void fill(int n) { evaluate(random_tokens(n)); }

  void generate(int n) {
    const llama::Vocab& vocab = context_.model().vocab();
    Token token = context_.length(seq_) == 0 && vocab.add_bos() ? vocab.special().bos : random_token();
    for (int i = 0; i < n; ++i) {
      const llama::StepSequence row{seq_, {&token, 1}, llama::Outputs::last, nullptr};
      context_.run({{&row, 1}});
      token = random_token();
    }
  }

 private:
  void evaluate(const std::vector<Token>& tokens) {
    const auto n_batch = static_cast<std::size_t>(context_.params().n_batch);
    for (std::size_t at = 0; at < tokens.size(); at += n_batch) {
      const llama::StepSequence rows{seq_, std::span(tokens).subspan(at, std::min(n_batch, tokens.size() - at)),
                                     llama::Outputs::last, nullptr};
      context_.run({{&rows, 1}});
    }
  }

  [[nodiscard]] std::vector<Token> random_tokens(int n) {
    std::vector<Token> tokens(static_cast<std::size_t>(n));
    for (Token& token : tokens) token = random_token();
    const llama::Vocab& vocab = context_.model().vocab();
    if (context_.length(seq_) == 0 && n > 0 && vocab.add_bos()) tokens[0] = vocab.special().bos;
    return tokens;
  }

  Token random_token() {
    return std::rand() % context_.model().info().n_vocab;
  }  // NOLINT(cert-msc50-cpp): the documented stream

  llama::Context& context_;
  llama::SeqId seq_;
  std::vector<Token> text_;  // empty: random tokens
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// PATTERN=BUFFER items with ; between them.
std::vector<common::TensorRule> rules_of(const std::string& group) {
  std::vector<common::TensorRule> rules;
  for (std::size_t begin = 0; begin < group.size();) {
    const std::size_t end = std::min(group.find(';', begin), group.size());
    const std::string rule = group.substr(begin, end - begin);
    const std::size_t equals = rule.rfind('=');
    if (equals != std::string::npos) rules.emplace_back(rule.substr(0, equals), rule.substr(equals + 1));
    begin = end + 1;
  }
  return rules;
}

/// The layers below name -c as what makes a context smaller; here the sizes of a test make it.
std::string hint_of_test(std::string hint) {
  const std::string flag = "-c", sizes = "-p, -n and -d";
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; };
  for (std::size_t at = hint.find(flag); at != std::string::npos; at = hint.find(flag, at + 1)) {
    const std::size_t end = at + flag.size();
    if ((at > 0 && is_word(hint[at - 1])) || (end < hint.size() && is_word(hint[end]))) continue;
    hint.replace(at, flag.size(), sizes);
  }
  return hint;
}

/// What `body` returns; its errors name the test that is too large.
template <class Body>
auto about_test(const Test& test, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const ggml::Error& error) {
    std::string hint = hint_of_test(error.hint());
    if (hint == error.hint()) throw;
    throw ggml::Error(error.code(), test.label() + ": " + error.message(), std::move(hint));
  }
}

}  // namespace

std::vector<Token> tokens_of(const std::string& text, const llama::Vocab& vocab) {
  if (text.empty()) return {};
  return vocab.tokenize(text, {.add_special = true, .parse_special = true});
}

common::Settings settings_of(const common::Settings& given, const Test& test) {
  common::Settings settings = given;
  settings.model.path = test.model;
  settings.model.lock_memory = test.load_mode == LoadMode::mlock || test.load_mode == LoadMode::mmap_mlock;
  settings.model.load_mode = common::LoadMode::read;
  if (test.load_mode == LoadMode::mmap || test.load_mode == LoadMode::mmap_mlock)
    settings.model.load_mode = common::LoadMode::mmap;
  if (test.load_mode == LoadMode::direct_io) settings.model.load_mode = common::LoadMode::direct_io;
  settings.threads.n_threads = test.n_threads;
  settings.threads.n_threads_batch = test.n_threads_batch;
  settings.threads.poll = test.poll;
  settings.threads.cpus = test.cpus;
  settings.threads.strict = test.cpu_strict == 1;
  const std::int64_t n_tokens = std::int64_t{test.n_prompt} + test.n_gen + test.n_depth;
  settings.context.n_ctx = static_cast<int>(std::clamp<std::int64_t>(n_tokens, 1, std::numeric_limits<int>::max()));
  settings.context.n_batch = test.n_batch;
  settings.context.n_ubatch = test.n_ubatch;
  settings.context.flash_attention =
      test.flash_attention == FlashAttention::off ? common::Tristate::off : common::Tristate::on;
  if (test.mla >= 0) settings.context.mla = test.mla;
  settings.context.attention_max_batch_mib = test.attention_max_batch_mib;
  settings.context.expert_min = test.expert_reduction.first;
  settings.context.expert_threshold = test.expert_reduction.second;
  settings.cache.type_k = test.type_k;
  settings.cache.type_v = test.type_v;
  common::PlacementSettings& placement = settings.placement;
  placement.n_gpu_layers.reset();
  if (test.n_gpu_layers >= 0) placement.n_gpu_layers = test.n_gpu_layers;
  placement.n_cpu_moe = test.n_cpu_moe;
  placement.n_cpu_moe_blocks = test.n_cpu_moe_blocks;
  placement.tensor_rules = rules_of(test.tensor_rules);
  // A grid compares what it was told to compare: nothing is chosen unless that was asked for.
  if (placement.fit == common::Fit::automatic) placement.fit = common::Fit::off;
  return settings;
}

RunFacts run_facts(const common::Settings& settings, const common::Machine& machine) {
  const common::PlacementSettings& placement = settings.placement;
  RunFacts facts;
  std::vector<std::string> kinds, descriptions;
  for (std::size_t d = 1; d < machine.devices.size(); ++d) {
    std::string kind = machine.devices[d]->name();
    kind.erase(kind.find_last_not_of("0123456789") + 1);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    descriptions.push_back(machine.devices[d]->description());
  }
  if (!kinds.empty()) facts.backends = joined(kinds, ",");
  facts.gpu_info = joined(descriptions, ", ");
  facts.split_mode = placement.split_mode == common::SplitMode::none ? "none" : "layer";
  if (placement.devices) facts.devices = placement.devices->empty() ? "none" : joined(*placement.devices, "/");
  std::vector<std::string> shares;
  for (const float share : placement.tensor_split) shares.push_back(ggml::strf("%.2f", static_cast<double>(share)));
  while (!shares.empty() && shares.back() == "0.00") shares.pop_back();
  if (!shares.empty()) facts.tensor_split = joined(shares, "/");
  facts.main_gpu = placement.main_gpu.value_or(0);
  facts.no_kv_offload = !placement.kv_offload;
  facts.no_op_offload = !placement.op_offload;
  facts.no_ooae = !placement.offload.only_active_experts;
  facts.cpu_moe = placement.cpu_moe;
  facts.graph_reuse = settings.context.graph_reuse;
  facts.fused_moe = settings.context.fused_experts;
  facts.no_fused_up_gate = !settings.context.fused_up_gate;
  facts.no_fused_sum = !settings.context.fused_expert_sum;
  facts.merge_qkv = settings.model.merge_qkv;
  facts.merge_up_gate = settings.model.merge_up_gate;
  facts.repack = settings.model.repack;
  facts.k_hadamard = settings.cache.k_hadamard;
  facts.v_hadamard = settings.cache.v_hadamard;
  if (placement.fit == common::Fit::on || placement.fit == common::Fit::explain) {
    facts.fit_target = placement.fit_margins_mib.empty() ? 0 : placement.fit_margins_mib.front();
    facts.fit_min_ctx = placement.fit_context;
  }
  return facts;
}

const common::PlannedRun& Runner::prepare(const Test& test) {
  return about_test(test, [&]() -> const common::PlannedRun& { return prepare_test(test); });
}

Result Runner::run(const Test& test) {
  return about_test(test, [&] { return run_test(test); });
}

const common::PlannedRun& Runner::prepare_test(const Test& test) {
  const common::PlannedRun& planned = loaded_.prepare(settings_of(settings_, test), 1);
  std::vector<std::string> lines = common::idle_flags(planned);
  const auto is_latent = [](const llama::TensorPlan& tensor) {
    return tensor.name.find(".attn_kv_a_mqa.") != std::string::npos;
  };
  const auto& tensors = planned.plan().tensors;
  if (test.mla >= 0 && std::none_of(tensors.begin(), tensors.end(), is_latent))
    lines.push_back(ggml::strf("-mla %d has no effect: the model has no latent attention", test.mla));
  for (std::string& line : lines) {
    line = hint_of_test(std::move(line));
    if (said_.insert(line).second) std::fprintf(stderr, "llama-bench: %s\n", line.c_str());
  }
  return planned;
}

Result Runner::run_test(const Test& test) {
  const common::PlannedRun& planned = prepare_test(test);
  llama::Context context(loaded_.model(), planned.machine->pointers(), planned.plan(), planned.context);
  Load work(context, tokens_of(settings_.prompt.prompt, loaded_.model().vocab()));
  if (settings_.model.warmup) {
    if (test.n_prompt > 0) work.prompt(test.n_prompt);
    if (test.n_gen > 0 && test.n_prompt == 0) work.generate(1);
  }
  Result result;
  result.test = test;
  result.test_time = utc_now();
  for (int i = 0; i < settings_.grid.repetitions; ++i) {
    work.clear();
    if (test.n_depth > 0) work.fill(test.n_depth);
    if (test.prompt_is_untimed) work.prompt(test.n_prompt);
    const Clock::time_point start = Clock::now();
    if (test.n_prompt > 0 && !test.prompt_is_untimed) work.prompt(test.n_prompt);
    if (test.n_gen > 0) work.generate(test.n_gen);
    result.samples_ns.push_back(static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count()));
  }
  result.run = run_facts(settings_, *planned.machine);
  const llama::ModelInfo& info = loaded_.model().info();
  result.subject = {.build_commit = std::string(common::build_commit()),
                    .cpu_info = planned.machine->cpu().description(),
                    .model_type = info.architecture + " " + info.size_label + " " + info.file_type,
                    .build_number = common::build_number(),
                    .model_size = info.file_bytes,
                    .model_n_params = info.n_params};
  return result;
}

}  // namespace bench
