// The mask beside the sampler: where a lazy grammar begins, and where thoughts end.
#include "common/chat/reply_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/chat/reply_grammar.h"
#include "common/chat/reply_samples.h"
#include "ggml/gguf.h"
#include "llama/vocab.h"
#include "test_vocab.h"

namespace common::chat {
namespace {

using llama::Token;
using llama::Vocab;

struct Rules {
  std::shared_ptr<ReplyRules> rules = std::make_shared<ReplyRules>();
  Vocab vocab;
};

/// The bytes and `pieces`, whose text is taken as it stands: marks of formats hold U+2581.
Vocab vocab_of(const std::vector<std::string>& pieces) {
  ggml::gguf::Metadata metadata = llama::testing::spm_metadata(pieces);
  const std::size_t n = metadata.get_array("tokenizer.ggml.tokens")->size();
  constexpr std::int32_t kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;
  std::vector<std::int32_t> types(n, kByte);
  types[0] = kUnknown;
  types[1] = types[2] = kControl;
  std::fill(types.end() - static_cast<std::ptrdiff_t>(pieces.size()), types.end(), kUserDefined);
  metadata.set_i32s("tokenizer.ggml.token_type", types);
  return Vocab::load(metadata, "test");
}

/// The rules of a request with the sample's tools.
Rules rules_of(const ReplySample& sample, const std::vector<std::string>& pieces, ToolChoice choice) {
  Rules out{.vocab = vocab_of(pieces)};
  out.rules->reading = format_of(sample);
  ReplyDemand demand;
  demand.tools = out.rules->reading.tools.get();
  demand.choice = choice;
  demand.parallel = true;
  if (const auto grammar = reply_grammar(*out.rules->reading.format, demand)) {
    const auto shared = std::make_shared<const grammar::GrammarVocab>(out.vocab);
    out.rules->grammar =
        std::make_shared<const grammar::CompiledGrammar>(grammar::Grammar::parse(grammar->gbnf, &out.vocab), shared);
    out.rules->lazy = grammar->lazy;
    out.rules->grammar_opening = opening_in_grammar(*out.rules->reading.format, out.rules->reading.opening);
  }
  return out;
}

std::vector<std::string> cut(const std::string& text, std::size_t size) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
  return pieces;
}

std::vector<std::uint32_t> words_for(const Vocab& vocab) {
  return std::vector<std::uint32_t>((static_cast<std::size_t>(vocab.n_tokens()) + 31) / 32);
}

bool allows(const std::vector<std::uint32_t>& words, Token token) {
  return (words[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U) != 0;
}

/// Writes `pieces` under the mask. Whether a grammar began, allowed all that followed, and allows the end.
bool written_under_lazy_grammar(const Rules& r, const std::vector<std::string>& pieces) {
  ReplyMask mask(r.rules, r.vocab);
  std::vector<std::uint32_t> words = words_for(r.vocab);
  bool began = false;
  for (const std::string& piece : pieces) {
    const Token token = r.vocab.find(piece);
    EXPECT_NE(token, llama::kNoToken);
    const bool masked = mask.fill(words);
    EXPECT_TRUE(masked || !began) << "a grammar that has begun does not end";
    began = masked;
    if (masked && !allows(words, token)) return false;
    mask.accept(token);
  }
  return mask.fill(words) && allows(words, r.vocab.special().eos) && mask.failure().empty();
}

TEST(ReplyMask, ALazyGrammarBeginsWithTheCallOfEveryFormatWhereverTokensAreCut) {
  std::set<std::string> expected, written;
  for (const ReplySample& sample : reply_samples()) {
    const ReplyReading reading = format_of(sample);
    if (sample.calls.empty() || !reading.format->lazy_grammar) continue;
    expected.insert(sample.format);
    bool all = true;
    for (const std::size_t size : {3U, 8U, 1000U}) {
      const std::vector<std::string> pieces = cut(sample.output, size);
      const Rules rules = rules_of(sample, pieces, ToolChoice::automatic);
      ASSERT_TRUE(rules.rules->lazy) << sample.format;
      all = all && written_under_lazy_grammar(rules, pieces);
    }
    // Some samples are what models write against the format's habit, which a grammar does not.
    if (all) written.insert(sample.format);
  }
  EXPECT_EQ(written, expected);
}

TEST(ReplyMask, WithoutACallALazyGrammarAllowsEverything) {
  for (const ReplySample& sample : reply_samples()) {
    if (!sample.calls.empty()) continue;
    SCOPED_TRACE(sample.format + ": " + sample.output);
    const std::vector<std::string> pieces = cut(sample.output, 4);
    const Rules rules = rules_of(sample, pieces, ToolChoice::automatic);
    ReplyMask mask(rules.rules, rules.vocab);
    std::vector<std::uint32_t> words = words_for(rules.vocab);
    for (const std::string& piece : pieces) mask.accept(rules.vocab.find(piece));
    // A recipient that no tool has is a call to the parser of one format, and nothing else is.
    EXPECT_TRUE(!mask.fill(words) || sample.output.find("to=") != std::string::npos);
  }
}

const ReplySample kThinking{"Hermes 2 Pro", "<tool_call> <think>", "<|im_start|>assistant\n<think>\n", "", "", "", {}};

TEST(ReplyMask, ACallInsideThoughtsStartsNoGrammar) {
  const std::vector<std::string> pieces{
      "I could <tool_call>", "{\"name\": ", "x", "</think>", "\n\n", "<tool", "_call>"};
  const Rules rules = rules_of(kThinking, pieces, ToolChoice::automatic);
  ReplyMask mask(rules.rules, rules.vocab);
  std::vector<std::uint32_t> words = words_for(rules.vocab);
  for (const std::string& piece : pieces) {
    EXPECT_FALSE(mask.fill(words)) << piece;
    mask.accept(rules.vocab.find(piece));
  }
  EXPECT_TRUE(mask.fill(words)) << "behind the thoughts it does";
  EXPECT_FALSE(allows(words, rules.vocab.find("x")));
}

TEST(ReplyMask, AfterItsBudgetTheThoughtIsEnded) {
  Rules rules = rules_of(kThinking, {"hm", "</think>", "So."}, ToolChoice::none);
  EXPECT_EQ(rules.rules->grammar, nullptr);
  rules.rules->reasoning_budget = 3;
  rules.rules->reasoning_end = {rules.vocab.find("So."), rules.vocab.find("</think>")};
  ReplyMask mask(rules.rules, rules.vocab);
  std::vector<std::uint32_t> words = words_for(rules.vocab);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(mask.fill(words));
    mask.accept(rules.vocab.find("hm"));
  }
  for (const Token forced : rules.rules->reasoning_end) {
    ASSERT_TRUE(mask.fill(words));
    for (Token t = 0; t < rules.vocab.n_tokens(); ++t) EXPECT_EQ(allows(words, t), t == forced);
    mask.accept(forced);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(mask.fill(words)) << "behind the thought nothing is counted";
    mask.accept(rules.vocab.find("hm"));
  }
}

TEST(ReplyMask, ABudgetOfNothingEndsTheThoughtThatThePromptOpened) {
  Rules rules = rules_of(kThinking, {"</think>"}, ToolChoice::none);
  rules.rules->reasoning_budget = 0;
  rules.rules->reasoning_end = {rules.vocab.find("</think>")};
  ReplyMask mask(rules.rules, rules.vocab);
  std::vector<std::uint32_t> words = words_for(rules.vocab);
  ASSERT_TRUE(mask.fill(words));
  EXPECT_TRUE(allows(words, rules.vocab.find("</think>")));
}

/// Behind thoughts that the prompt opened: a grammar of the client's own, or one that a schema makes.
Rules rules_behind_thoughts(const std::string& own_grammar, int budget) {
  Rules out{.vocab = vocab_of({"hm", "</think>", "yes", "{"})};
  out.rules->reading = format_of(kThinking);
  const ReplyFormat& format = *out.rules->reading.format;
  const auto shared = std::make_shared<const grammar::GrammarVocab>(out.vocab);
  std::shared_ptr<const grammar::Grammar> parsed;
  if (!own_grammar.empty()) {
    parsed = grammar::Grammar::parse_framed(own_grammar, answer_frame(format, true).value(), &out.vocab);
  } else {
    const auto schema = nlohmann::ordered_json::parse(R"({"type":"object"})");
    ReplyDemand demand;
    demand.schema = &schema;
    parsed = grammar::Grammar::parse(reply_grammar(format, demand)->gbnf, &out.vocab);
  }
  out.rules->grammar = std::make_shared<const grammar::CompiledGrammar>(parsed, shared);
  out.rules->grammar_opening = opening_in_grammar(format, out.rules->reading.opening);
  out.rules->reasoning_budget = budget;
  out.rules->reasoning_end = {out.vocab.find("</think>")};
  return out;
}

// The mark behind the thoughts would otherwise break the character, which no grammar and no JSON text can hold.
TEST(ReplyMask, ABudgetThatEndsInsideACharacterWaitsForItsEnd) {
  for (const bool with_grammar : {true, false}) {
    Rules rules = rules_behind_thoughts("", 2);
    if (!with_grammar) rules.rules->grammar = nullptr;
    ReplyMask mask(rules.rules, rules.vocab);
    std::vector<std::uint32_t> words = words_for(rules.vocab);
    const Token end = rules.vocab.find("</think>");
    const auto only = [&](const std::vector<std::string>& allowed, const std::vector<std::string>& refused) {
      ASSERT_TRUE(mask.fill(words));
      for (const std::string& piece : allowed) EXPECT_TRUE(allows(words, rules.vocab.find(piece))) << piece;
      for (const std::string& piece : refused) EXPECT_FALSE(allows(words, rules.vocab.find(piece))) << piece;
      EXPECT_FALSE(allows(words, rules.vocab.special().eos));
    };
    for (const char* piece : {"hm", "<0xF0>"}) mask.accept(rules.vocab.find(piece));
    only({"<0x9F>", "<0x90>"}, {"hm", "</think>", "<0xF0>", "<0x61>", "<0x80>"});
    for (const char* piece : {"<0x9F>", "<0x98>"}) mask.accept(rules.vocab.find(piece));
    only({"<0x80>", "<0xBF>"}, {"hm", "</think>", "<0xC3>"});
    mask.accept(rules.vocab.find("<0x80>"));
    ASSERT_TRUE(mask.fill(words));
    for (Token t = 0; t < rules.vocab.n_tokens(); ++t) EXPECT_EQ(allows(words, t), t == end);
    mask.accept(end);
    EXPECT_EQ(mask.fill(words), with_grammar);
    EXPECT_TRUE(!with_grammar || allows(words, rules.vocab.find("{")));
    EXPECT_EQ(mask.failure(), "");
  }
}

TEST(ReplyMask, AGrammarOfTheClientHoldsTheAnswerAndNotTheThoughts) {
  for (const int budget : {-1, 0}) {
    const Rules rules = rules_behind_thoughts("root ::= \"yes\" space\nspace ::= \"!\"?", budget);
    ReplyMask mask(rules.rules, rules.vocab);
    std::vector<std::uint32_t> words = words_for(rules.vocab);
    if (budget != 0) {
      ASSERT_TRUE(mask.fill(words));
      EXPECT_TRUE(allows(words, rules.vocab.find("hm")));
      EXPECT_FALSE(allows(words, rules.vocab.special().eos));
      mask.accept(rules.vocab.find("hm"));
    }
    ASSERT_TRUE(mask.fill(words));
    EXPECT_TRUE(allows(words, rules.vocab.find("</think>")));
    mask.accept(rules.vocab.find("</think>"));
    ASSERT_TRUE(mask.fill(words));
    EXPECT_TRUE(allows(words, rules.vocab.find("yes")));
    EXPECT_FALSE(allows(words, rules.vocab.find("hm")));
    mask.accept(rules.vocab.find("yes"));
    ASSERT_TRUE(mask.fill(words));
    EXPECT_TRUE(allows(words, rules.vocab.special().eos));
    EXPECT_TRUE(allows(words, rules.vocab.find("<0x21>")));
    EXPECT_EQ(mask.failure(), "");
  }
}

}  // namespace
}  // namespace common::chat
