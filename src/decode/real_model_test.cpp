#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <string>

#include "ggml/cpu.h"
#include "llama/context.h"
#include "llama/model.h"
#include "llama/sampler.h"

/// A real model, when scripts/get-model.sh has fetched it.
namespace llama {
namespace {

std::string find_model(const std::string& beginning) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("models", error)) {
    std::string name = entry.path().filename().string();
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (name.rfind(beginning, 0) == 0 && entry.path().extension() == ".gguf") return entry.path().string();
  }
  return {};
}

std::string greedy_answer(Context& context, const std::string& prompt, int n_tokens) {
  const Vocab& vocab = context.model().vocab();
  SamplingParams params;
  params.temperature = 0.0f;
  Sampler sampler(params, vocab, context.params().n_ctx);
  const SeqId seq = context.create_sequence();
  std::vector<Token> tokens = vocab.tokenize(prompt, {.add_special = true, .parse_special = true});
  std::string answer;
  for (int i = 0; i < n_tokens; ++i) {
    const StepSequence s{seq, tokens, Outputs::last, &sampler};
    const Token token = context.run({{&s, 1}}).sequences[0].sampled->token;
    if (vocab.is_eog(token)) break;
    answer += vocab.piece(token, SpecialText::hide);
    tokens = {token};
  }
  context.remove_sequence(seq);
  return answer;
}

TEST(RealModel, SmolLm2KnowsTheCapitalOfFrance) {
  const std::string path = find_model("smollm2");
  if (path.empty()) GTEST_SKIP() << "fetch it with scripts/get-model.sh smollm2";
  const auto device = ggml::make_cpu_device({});
  ModelParams params;
  params.path = path;
  const auto model = Model::load(params, *device, {});
  const std::string prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";
  for (const bool flash : {true, false}) {
    ContextParams settings;
    settings.n_ctx = 512;
    settings.flash_attention = flash;
    Context context(*model, *device, settings);
    const std::string answer = greedy_answer(context, prompt, 24);
    EXPECT_NE(answer.find("Paris"), std::string::npos) << answer;
  }
}

TEST(RealModel, Gemma3ExpectsParisAmongItsFirstThree) {
  const std::string path = find_model("gemma-3");
  if (path.empty()) GTEST_SKIP() << "fetch it with scripts/get-model.sh gemma3-270m";
  const auto device = ggml::make_cpu_device({});
  ModelParams params;
  params.path = path;
  const auto model = Model::load(params, *device, {});
  ContextParams settings;
  settings.n_ctx = 512;
  Context context(*model, *device, settings);
  // The base model continues text and knows no chat. Evaluated in double precision, the likeliest next tokens are
  // " the", " a" and " Paris", 0.5 and 0.3 apart.
  const Vocab& vocab = model->vocab();
  SamplingParams sampling;
  sampling.temperature = 0.0f;
  sampling.n_probs = 3;
  Sampler sampler(sampling, vocab, 512);
  const std::vector<Token> tokens =
      vocab.tokenize("The capital of France is", {.add_special = true, .parse_special = false});
  const StepSequence s{context.create_sequence(), tokens, Outputs::last, &sampler};
  const SampledToken sampled = *context.run({{&s, 1}}).sequences[0].sampled;
  std::string likeliest;
  for (const TokenProb& prob : sampled.top) likeliest += vocab.piece(prob.token, SpecialText::hide);
  EXPECT_EQ(likeliest, " the a Paris");
}

}  // namespace
}  // namespace llama
