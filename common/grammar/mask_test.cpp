#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "common/grammar/grammar_builder.h"
#include "common/grammar/grammar_cache.h"
#include "common/grammar/matcher.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "grammar_test_support.h"
#include "test_support.h"

namespace common::grammar::testing {
namespace {

using llama::Token;

std::vector<std::uint32_t> words_of(const llama::Vocab& vocab) {
  return std::vector<std::uint32_t>((static_cast<std::size_t>(vocab.n_tokens()) + 31) / 32, 0xFFFFFFFFu);
}

bool is_set(const std::vector<std::uint32_t>& words, Token token) {
  return (words[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1u) != 0;
}

class MaskTest : public ::testing::Test {
 protected:
  const llama::Vocab vocab_ =
      vocab_of({"a",  "b",  "c", "ab", "ba", "aba",  "bb",  "{",   "}",   "{{",      "}}", "{a",  "a}",   "é", "ü",
                "éa", "aé", "🚀", "🚀b", "b🚀", "abab", "abc", "ccc", "}a{", "<think>", "\"", "\":", "true", "n"});
  const std::shared_ptr<const GrammarVocab> shared_ = std::make_shared<const GrammarVocab>(vocab_);

  [[nodiscard]] std::shared_ptr<const CompiledGrammar> compile(const std::string& gbnf) const {
    return std::make_shared<const CompiledGrammar>(Grammar::parse(gbnf, &vocab_), shared_);
  }
  [[nodiscard]] Token token(const std::string& text) const {
    for (Token t = 0; t < vocab_.n_tokens(); ++t) {
      if (vocab_.piece(t, llama::SpecialText::show) == text) return t;
    }
    ADD_FAILURE() << "no token " << text;
    return 0;
  }
  /// The texts that the mask allows; end tokens as "<end>".
  std::set<std::string> allowed(GrammarMask& mask) const {
    std::vector<std::uint32_t> words = words_of(vocab_);
    std::set<std::string> texts;
    if (!mask.fill(words)) return {"everything"};
    for (Token t = 0; t < vocab_.n_tokens(); ++t) {
      if (is_set(words, t))
        texts.insert(vocab_.is_eog(t) ? "<end>" : std::string(vocab_.piece(t, llama::SpecialText::show)));
    }
    return texts;
  }
  void compare_everywhere(const std::string& gbnf, std::mt19937& random, int n_steps);
};

using Texts = std::set<std::string>;

/// Walks at random; at every place each token's bit must say what the reference says of its bytes.
void MaskTest::compare_everywhere(const std::string& gbnf, std::mt19937& random, int n_steps) {
  const auto grammar = compile(gbnf);
  if (random() % 2 == 0) grammar->warm_up(5);
  const Reference reference(parse_gbnf(gbnf, nullptr));
  GrammarMask mask(grammar);
  Reference::State state = reference.start();
  std::vector<std::uint32_t> words = words_of(vocab_);
  for (int step = 0; step < n_steps && state.stacks.size() < 60; ++step) {
    std::vector<Token> choices;
    ASSERT_TRUE(mask.fill(words));
    if (mask.failure().find("too many different ways") != std::string::npos) return;  // a limit, tested elsewhere
    for (Token t = 0; t < vocab_.n_tokens(); ++t) {
      const std::string_view piece = vocab_.piece(t, llama::SpecialText::show);
      bool expected = false;
      if (vocab_.is_eog(t)) {
        expected = Reference::may_end(state);
      } else if (!piece.empty() && piece[0] != '\0') {
        expected = reference.after(state, piece).has_value();
        if (expected) choices.push_back(t);
      }
      ASSERT_EQ(is_set(words, t), expected) << "token \"" << piece << "\" after " << step << " tokens of\n" << gbnf;
    }
    ASSERT_EQ(mask.may_end(), Reference::may_end(state));
    if (choices.empty()) return;
    const Token chosen = choices[random() % choices.size()];
    mask.accept(chosen);
    if (mask.failure().find("too many different ways") != std::string::npos) return;
    ASSERT_EQ(mask.failure(), "");
    state = *reference.after(state, vocab_.piece(chosen, llama::SpecialText::show));
  }
}

TEST_F(MaskTest, EveryBitIsWhatTheReferenceSaysInRandomGrammars) {
  std::mt19937 random(4);
  int n_used = 0;
  for (int round = 0; round < 600; ++round) {
    const std::string gbnf = random_grammar(random);
    if (!error_of(gbnf).empty()) continue;
    try {
      compare_everywhere(gbnf, random, 6);
      ++n_used;
    } catch (const Reference::TooAmbiguous&) {
      continue;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(n_used, 100);
}

TEST_F(MaskTest, WholeTextsAreAcceptedAsTheReferenceDoes) {
  std::mt19937 random(5);
  for (int round = 0; round < 600; ++round) {
    const std::string gbnf = random_grammar(random);
    if (!error_of(gbnf).empty()) continue;
    const auto grammar = Grammar::parse(gbnf);
    const Reference reference(parse_gbnf(gbnf, nullptr));
    for (int i = 0; i < 20; ++i) {
      static const char* const kParts[] = {"a", "b", "ab", "é", "{", "c", "🚀", "\xC3"};
      std::string text;
      for (unsigned n = random() % 6; n > 0; --n) text += kParts[random() % std::size(kParts)];
      bool expected = false;
      try {
        const auto end = reference.after(reference.start(), text);
        expected = end.has_value() && Reference::may_end(*end);
      } catch (const Reference::TooAmbiguous&) {
        break;
      }
      ASSERT_EQ(accepts(*grammar, text), expected) << text << "\n" << gbnf;
    }
  }
}

TEST_F(MaskTest, SchemasAreComparedWithTheReferenceToo) {
  std::mt19937 random(6);
  compare_everywhere(
      "root ::= \"{\" m (\"{\" m)* \"}\"\nm ::= s \":\" v\nv ::= root | s | \"true\" | \"n\"\ns ::= "
      "\"\\\"\" [^\"\\\\]* \"\\\"\"",
      random, 40);
}

TEST_F(MaskTest, TheEndIsAllowedOnlyWhereTheTextMayEnd) {
  GrammarMask mask(compile("root ::= \"ab\" \"c\"?"));
  EXPECT_EQ(allowed(mask), (Texts{"a", "ab", "abc"}));
  mask.accept(token("ab"));
  EXPECT_EQ(allowed(mask), (Texts{"c", "<end>"}));
  mask.accept(token("c"));
  EXPECT_EQ(allowed(mask), (Texts{"<end>"}));
  mask.accept(vocab_.special().eos);
  EXPECT_EQ(mask.failure(), "");
  EXPECT_EQ(allowed(mask), (Texts{"<end>"}));
}

TEST_F(MaskTest, ACharacterMayBeCutByTokenBorders) {
  GrammarMask mask(compile("root ::= [🚀é] \"a\""));
  EXPECT_EQ(allowed(mask), (Texts{"é", "éa", "🚀", "\xC3", "\xF0"}));
  mask.accept(token("\xF0"));
  EXPECT_EQ(allowed(mask), (Texts{"\x9F"}));
  for (const char* byte : {"\x9F", "\x9A", "\x80"}) mask.accept(token(byte));
  EXPECT_EQ(allowed(mask), (Texts{"a"}));
}

TEST_F(MaskTest, TokenElementsAreComparedById) {
  const std::string think = std::to_string(token("<think>"));
  GrammarMask mask(compile("root ::= <[" + think + "]> !<[" + std::to_string(token("aba")) + "]> \"b\""));
  EXPECT_EQ(allowed(mask), (Texts{"<think>"}));
  mask.accept(token("<think>"));
  Texts all = allowed(mask);
  EXPECT_EQ(all.count("aba"), 0u);
  EXPECT_EQ(all.count("<end>"), 0u);
  EXPECT_EQ(all.count("b") + all.count("<think>") + all.count("\xF0"), 3u);
  mask.accept(token("ab"));
  EXPECT_EQ(allowed(mask), (Texts{"b"}));
  GrammarMask literal(compile("root ::= \"<think>\""));
  EXPECT_EQ(allowed(literal).count("<think>"), 1u);
}

TEST_F(MaskTest, ATokenThatTheGrammarRefusesEndsInAFailureNotInACrash) {
  GrammarMask mask(compile("root ::= \"a\""));
  mask.accept(token("b"));
  EXPECT_NE(mask.failure().find("does not allow token"), std::string::npos);
  EXPECT_EQ(allowed(mask), Texts{});
  mask.accept(-1);
  mask.accept(1'000'000);
  GrammarMask dead(compile("root ::= [\\uD800-\\uDFFF]"));
  EXPECT_EQ(allowed(dead), Texts{});
  EXPECT_NE(dead.failure(), "");
}

TEST_F(MaskTest, HopelesslyAmbiguousGrammarsFailWithinTheirLimits) {
  // Each "a" may be one of two things that are told apart only at the end: two to the power of n stacks.
  GrammarMask mask(
      compile("root ::= p root \"b\" | q root \"c\" | \"\"\n"
              "p ::= \"a\" | \"{\" \"z\"* p \"}\"\nq ::= \"a\" | \"{\" \"y\"* q \"}\""));
  for (int i = 0; i < 40 && mask.failure().empty(); ++i) {
    (void)allowed(mask);
    mask.accept(token("a"));
  }
  EXPECT_NE(mask.failure().find("too many different ways"), std::string::npos);
}

TEST_F(MaskTest, TextBeforeTheAnswerIsFedIn) {
  GrammarMask mask(compile("root ::= \"<think>\" [a-b]* \"n\""));
  EXPECT_FALSE(mask.feed("<no>"));
  EXPECT_TRUE(mask.feed("<think>a"));
  EXPECT_EQ(allowed(mask).count("n"), 1u);
  GrammarMask copy(mask);
  copy.accept(token("n"));
  EXPECT_EQ(allowed(copy), Texts{"<end>"});
  EXPECT_EQ(allowed(mask).count("ab"), 1u) << "copies are independent";
}

TEST_F(MaskTest, ALazyGrammarWaitsForAWordAndCutsTokens) {
  LazyTriggers triggers;
  triggers.words = {"}a", "nothing"};
  GrammarMask mask(compile("root ::= \"}a{\" [ab]+"), triggers);
  EXPECT_EQ(allowed(mask), Texts{"everything"});
  for (const char* text : {"ccc", "a}"}) mask.accept(token(text));
  EXPECT_TRUE(mask.waiting());
  EXPECT_TRUE(mask.may_end());
  mask.accept(token("a"));  // "ccca}" + "a"
  EXPECT_FALSE(mask.waiting());
  EXPECT_EQ(allowed(mask), (Texts{"{", "{a"}));
}

TEST_F(MaskTest, ALazyGrammarStartsAtATokenOrAtTheFirstGroupOfAPattern) {
  LazyTriggers by_token;
  by_token.tokens = {token("<think>")};
  GrammarMask mask(compile("root ::= <[" + std::to_string(token("<think>")) + "]> \"c\""), by_token);
  mask.accept(token("a"));
  mask.accept(token("<think>"));
  EXPECT_EQ(allowed(mask), (Texts{"c"}));

  LazyTriggers by_pattern;
  by_pattern.patterns = {"^c+(x)?(a.)$"};
  GrammarMask second(compile("root ::= \"ab\" \"n\""), by_pattern);
  second.accept(token("ccc"));
  second.accept(token("ab"));
  EXPECT_EQ(allowed(second), (Texts{"n"}));

  LazyTriggers late;
  late.words = {"ab"};
  late.only_after = "}}";
  GrammarMask third(compile("root ::= \"ab\" \"n\""), late);
  for (const char* text : {"ab", "}", "}", "ccc", "ab"}) {
    EXPECT_TRUE(third.waiting());
    third.accept(token(text));
  }
  EXPECT_EQ(allowed(third), (Texts{"n"}));
}

TEST_F(MaskTest, BadTriggersAreRefused) {
  const auto grammar = compile("root ::= \"a\"");
  LazyTriggers pattern;
  pattern.patterns = {"a(b"};
  EXPECT_THROW(GrammarMask(grammar, pattern), ggml::Error);
  LazyTriggers far;
  far.tokens = {99999};
  EXPECT_THROW(GrammarMask(grammar, far), ggml::Error);
  LazyTriggers slow;
  slow.patterns = {"(a+)+(a+)+(a+)+$x"};
  GrammarMask mask(grammar, slow);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) mask.accept(token("abab"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(MaskTest, TheCacheGivesTheSameGrammarAgain) {
  GrammarCache cache(vocab_);
  const auto first = cache.get("root ::= \"a\"");
  EXPECT_EQ(cache.get("root ::= \"a\""), first);
  for (int i = 0; i < 20; ++i) (void)cache.get("root ::= \"" + std::to_string(i) + "\"");
  EXPECT_NE(cache.get("root ::= \"a\""), first) << "it was long enough ago";
  EXPECT_THROW((void)cache.get("root ::= b"), ggml::Error);
}

TEST(BigVocab, MasksOfARealVocabularyAreExact) {
  const auto shared = tandem::shared_dir();
  if (!shared.has_value()) GTEST_SKIP() << "no shared vocabularies";
  const std::string file = (*shared / "data" / "vocab" / "llama3.gguf").string();
  const llama::Vocab vocab = llama::Vocab::load(ggml::gguf::File::open(file).metadata(), file);
  GrammarBuilder b;
  b.set_root(b.json_value());
  const auto grammar =
      std::make_shared<const CompiledGrammar>(Grammar::parse(b.text()), std::make_shared<const GrammarVocab>(vocab));
  const Reference reference(parse_gbnf(b.text(), nullptr));
  GrammarMask mask(grammar);
  Reference::State state = reference.start();
  std::vector<std::uint32_t> words = words_of(vocab);
  for (const Token token :
       vocab.tokenize("[{\"a\": \"x\\u00e9\", \"b\": [1, -2.5e3, true]}, null, [[\"\xF0\x9F\x9A\x80\"]]]", {})) {
    ASSERT_TRUE(mask.fill(words));
    // The reference is slow: every 211th token, and all those that are one byte long.
    for (Token t = 0; t < vocab.n_tokens(); t += t < 256 ? 1 : 211) {
      if (vocab.is_eog(t)) continue;
      const std::string_view piece = vocab.piece(t, llama::SpecialText::show);
      const bool expected = !piece.empty() && piece[0] != '\0' && reference.after(state, piece).has_value();
      ASSERT_EQ(is_set(words, t), expected) << piece;
    }
    ASSERT_TRUE(is_set(words, token));
    mask.accept(token);
    state = *reference.after(state, vocab.piece(token, llama::SpecialText::show));
  }
  EXPECT_TRUE(mask.may_end());
}

}  // namespace
}  // namespace common::grammar::testing
