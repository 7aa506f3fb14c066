#include "llama/vocab.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/utf8.h"
#include "test_support.h"
#include "test_vocab.h"

namespace llama {
namespace {

using ggml::gguf::Metadata;
using testing::bpe_metadata;
using testing::some_merges;
using testing::spm_metadata;

Vocab load(const Metadata& metadata) {
  return Vocab::load(metadata, "test.gguf");
}

// The message of the error that loading throws, with its hint; empty when it loads.
std::string load_error(const Metadata& metadata) {
  try {
    (void)load(metadata);
  } catch (const ggml::Error& e) {
    return e.message() + " | " + e.hint();
  }
  return {};
}

std::vector<std::string> texts(const Vocab& vocab, const std::vector<Token>& tokens) {
  std::vector<std::string> out;
  out.reserve(tokens.size());
  for (const Token t : tokens) out.emplace_back(vocab.text(t));
  return out;
}

using Texts = std::vector<std::string>;

TEST(Spm, MergesTheBestScoreFirstAndTheLeftmostOfEquals) {
  const Vocab vocab = load(spm_metadata({"ab", "bc", "▁", "a", "b", "c"}));
  EXPECT_EQ(texts(vocab, vocab.tokenize("abc", {})), (Texts{"▁", "ab", "c"}));
  Metadata equal = spm_metadata({"aa", "a", "▁"});
  const Vocab runs = load(equal);
  EXPECT_EQ(texts(runs, runs.tokenize("aaa", {})), (Texts{"▁", "aa", "a"}));
}

TEST(Spm, PutsASpaceInFrontOfTextAndAfterSpecialTokensOnly) {
  const Vocab vocab = load(spm_metadata({"▁", "a"}));
  EXPECT_EQ(texts(vocab, vocab.tokenize("a</s>a", {.parse_special = true})), (Texts{"▁", "a", "</s>", "▁", "a"}));
  EXPECT_TRUE(vocab.tokenize("", {}).empty());
  EXPECT_EQ(texts(vocab, vocab.tokenize("", {.add_special = true})), (Texts{"<s>"}));
}

TEST(Spm, WritesUnknownCharactersAsBytes) {
  const Vocab vocab = load(spm_metadata({"▁", "a"}));
  const auto tokens = vocab.tokenize("aé\xFF", {});
  EXPECT_EQ(texts(vocab, tokens), (Texts{"▁", "a", "<0xC3>", "<0xA9>", "<0xFF>"}));
  EXPECT_EQ(vocab.detokenize(tokens, {}), "aé\xFF");
}

TEST(Spm, DropsTheSpacePrefixWhenDetokenisingUnlessABosWasDropped) {
  const Vocab vocab = load(spm_metadata({"▁", "a", "▁a"}));
  const auto tokens = vocab.tokenize("a", {.add_special = true});
  EXPECT_EQ(vocab.pieces(tokens, SpecialText::show), "<s> a");
  EXPECT_EQ(vocab.pieces(tokens, SpecialText::hide), " a");
  EXPECT_EQ(vocab.detokenize(tokens, {.remove_special = true}), " a");
  EXPECT_EQ(vocab.detokenize(vocab.tokenize("a", {}), {}), "a");
}

TEST(Bpe, MergesByRankWithinPieces) {
  const Vocab vocab = load(bpe_metadata(some_merges(), "gpt-2"));
  EXPECT_EQ(texts(vocab, vocab.tokenize("the then hello", {})), (Texts{"the", "Ġthe", "n", "Ġ", "hello"}));
}

TEST(Bpe, ParsesSpecialTokensOnlyWhenAskedAndUserDefinedAlways) {
  const Vocab vocab = load(bpe_metadata(some_merges(), "gpt-2"));
  EXPECT_EQ(texts(vocab, vocab.tokenize("a<|end|>a<tool>", {.parse_special = true})),
            (Texts{"a", "<|end|>", "a", "<tool>"}));
  const auto plain = vocab.tokenize("a<|end|><tool>", {});
  EXPECT_EQ(vocab.text(plain.back()), "<tool>");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), vocab.find("<|end|>")), 0);
  EXPECT_EQ(vocab.piece(vocab.find("<|end|>"), SpecialText::hide), "");
  EXPECT_EQ(vocab.piece(vocab.find("<|end|>"), SpecialText::show), "<|end|>");
  EXPECT_EQ(vocab.piece(vocab.find("<tool>"), SpecialText::hide), "<tool>");
}

TEST(Bpe, ReplacesInvalidUtf8ByteByByte) {
  const Vocab vocab = load(bpe_metadata(some_merges(), "gpt-2"));
  EXPECT_EQ(vocab.detokenize(vocab.tokenize("a\xC3(", {}), {}), "a\xEF\xBF\xBD(");
  EXPECT_EQ(vocab.detokenize(vocab.tokenize("\xF4\x90\x80\x80", {}), {}), replace_invalid_utf8("\xF4\x90\x80\x80"));
}

TEST(Bpe, LongPiecesMergeAsShortOnesDo) {
  // The heap (long pieces) and the scan (short ones) must agree: a repeated block merges the same way in both.
  const Vocab vocab = load(bpe_metadata(some_merges(), "gpt-2"));
  const auto shorter = vocab.tokenize("thethethethe", {});
  std::string text;
  for (int i = 0; i < 100; ++i) text += "thethethethe";
  const auto longer = vocab.tokenize(text, {});
  ASSERT_EQ(longer.size(), 100 * shorter.size());
  for (std::size_t i = 0; i < longer.size(); ++i) EXPECT_EQ(longer[i], shorter[i % shorter.size()]);
}

TEST(Partition, PrefersTheLongestTokenAnywhereInTheText) {
  Metadata m = spm_metadata({"▁", "a", "b", "c", "d", "<ab", "b<cdef>"});
  std::vector<std::int32_t> types(259 + 7, 6);
  types[0] = 2;
  types[1] = types[2] = 3;
  for (std::size_t i = 259; i < 264; ++i) types[i] = 1;
  types[264] = types[265] = 4;
  m.set_i32s("tokenizer.ggml.token_type", types);
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  const Vocab vocab = load(m);
  const auto tokens = texts(vocab, vocab.tokenize("<ab<cdef>", {}));
  ASSERT_FALSE(tokens.empty());
  EXPECT_EQ(tokens.back(), "b<cdef>") << "the longer token starts inside the shorter one and wins";
  EXPECT_EQ(texts(vocab, vocab.tokenize("<ab<cde", {})).front(), "<ab");
}

TEST(Wpm, LowersAndStripsAndTakesTheLongestPieces) {
  const Vocab vocab = load(testing::wpm_metadata());
  EXPECT_EQ(texts(vocab, vocab.tokenize("The Café, unaffables. 中文 xyz", {.add_special = true})),
            (Texts{"[CLS]", "▁the", "▁cafe", "▁,", "[UNK]", "▁.", "▁中", "▁文", "[UNK]", "[SEP]"}));
  EXPECT_EQ(texts(vocab, vocab.tokenize("unables", {})), (Texts{"▁un", "able", "s"}));
}

TEST(Ugm, FindsTheBestSumAndJoinsUnknowns) {
  const Vocab vocab = load(testing::ugm_metadata());
  EXPECT_EQ(texts(vocab, vocab.tokenize("  the   zz a ", {.add_special = true})),
            (Texts{"▁the", "▁", "<unk>", "▁a", "</s>"}));
}

TEST(Ugm, RefusesABrokenCharsMapByName) {
  for (const std::string& bytes : {std::string("\1"), std::string("\4\0\0\0abcd", 8), std::string("\3\0\0\0abcd", 8),
                                   std::string("\4\0\0\0abcdx", 9)}) {
    Metadata m = testing::ugm_metadata();
    ggml::gguf::Array array;
    array.element = ggml::gguf::ValueType::u8;
    for (const char c : bytes) array.numbers.push_back(static_cast<std::byte>(c));
    m.set("tokenizer.ggml.precompiled_charsmap", {ggml::gguf::ValueType::array, array});
    EXPECT_NE(load_error(m).find("tokenizer.ggml.precompiled_charsmap"), std::string::npos);
  }
}

TEST(Rwkv, TakesTheLongestMatch) {
  const Vocab vocab = load(testing::rwkv_metadata());
  EXPECT_EQ(texts(vocab, vocab.tokenize("then the\n\n\\", {})), (Texts{"then", " the", "\\n\\n", "\\x5c"}));
  EXPECT_EQ(vocab.pieces(vocab.tokenize("x\xFF\n\n", {}), SpecialText::show), "x\xFF\n\n");
}

// The answers are llama.cpp's for the same vocabulary.
TEST(Plamo, FindsTheBestSumFromTheEndWithTheLongestPieceOfEquals) {
  const Vocab vocab = load(
      testing::plamo_metadata({{"a", -1.0F},  {"b", -1.5F},    {"ab", -2.0F}, {"aba", -3.2F},    {"ba", -2.4F},
                               {" ", -1.0F},  {" a", -1.9F},   {"日", -3.0F}, {"日本", -4.5F},   {"本", -3.0F},
                               {"語", -2.0F}, {"aaaa", -3.9F}, {"aa", -2.0F}, {"bb", -1.00004F}, {"bbb", -1.00005F},
                               {"c<", -1.0F}, {"x<|", -3.0F},  {"cd", -2.0F}, {"c", -1.0F},      {"d", -1.0F}}));
  const auto cut = [&](std::string_view text) { return texts(vocab, vocab.tokenize(text, {.parse_special = true})); };
  EXPECT_EQ(cut("aba"), (Texts{"ab", "a"}));
  EXPECT_EQ(cut("aaaaa"), (Texts{"aaaa", "a"}));
  EXPECT_EQ(cut("bbbbb"), (Texts{"bbb", "bb"}));
  EXPECT_EQ(cut("日本語"), (Texts{"日本", "語"}));
  EXPECT_EQ(cut(" a a"), (Texts{" a", " a"}));
  EXPECT_EQ(cut("c<x<|"), (Texts{"c<", "x<|"}));
  EXPECT_EQ(cut("cd"), (Texts{"cd"})) << "-2 either way: the longer piece";
  EXPECT_EQ(cut("aéz"), (Texts{"a", "<0xC3>", "<0xA9>", "<0x7A>"}));
  EXPECT_EQ(cut("<|plamo:eos|>a"), (Texts{"<|plamo:eos|>", "a"}));
  EXPECT_EQ(cut("a\xFF"), (Texts{"a", "<0xEF>", "<0xBF>", "<0xBD>"}));
  EXPECT_EQ(cut("<0x41>"), (Texts{"<0x3C>", "<0x30>", "<0x78>", "<0x34>", "<0x31>", "<0x3E>"}));
  EXPECT_TRUE(cut("").empty());
  EXPECT_EQ(vocab.special().pad, 3);
  EXPECT_FALSE(vocab.add_bos());
  EXPECT_EQ(vocab.pieces(vocab.tokenize("日本 aé\n", {}), SpecialText::show), "日本 aé\n");
}

// The expected ids come from the algorithm of the model's own tokenizer (a table of suffixes, walked from the end),
// run step by step over made-up pieces; two characters have none and fall to bytes.
TEST(Plamo, SegmentsAsTheModelsOwnTokenizerDoes) {
  const auto golden = nlohmann::json::parse(tandem::load_text(tandem::data_dir() / "tokenizers" / "plamo2.json"));
  const Vocab vocab = load(testing::plamo_metadata(golden["pieces"].get<std::vector<std::pair<std::string, float>>>()));
  for (const auto& c : golden["cases"])
    EXPECT_EQ(vocab.tokenize(c[0].get<std::string>(), {}), c[1].get<std::vector<Token>>()) << c[0];
  EXPECT_EQ(golden["cases"].size(), 300u);
}

TEST(Plamo, SurvivesPiecesThatAreNoCharactersAndAbsurdScores) {
  const Vocab vocab = load(testing::plamo_metadata({{"\xC3", 1e30F}, {"a", -1e30F}, {"aé", 1e30F}}));
  EXPECT_EQ(vocab.pieces(vocab.tokenize("éaéa", {}), SpecialText::show), "éaéa");
}

TEST(VocabLoad, NamesTheKeyThatIsWrong) {
  struct Case {
    const char* expected;
    void (*spoil)(Metadata&);
  };
  const Case cases[] = {
      {"tokenizer.ggml.model: the key is missing", [](Metadata& m) { m.erase("tokenizer.ggml.model"); }},
      {R"('x\x1b[2J\x0a' is not a known)", [](Metadata& m) { m.set_string("tokenizer.ggml.model", "x\x1b[2J\n"); }},
      {"'xlm' is not a known tokenizer", [](Metadata& m) { m.set_string("tokenizer.ggml.model", "xlm"); }},
      {"known are: llama, gpt2", [](Metadata& m) { m.set_string("tokenizer.ggml.model", "xlm"); }},
      {"'nope' is not a known pre-tokenizer", [](Metadata& m) { m.set_string("tokenizer.ggml.pre", "nope"); }},
      {"qwen2", [](Metadata& m) { m.set_string("tokenizer.ggml.pre", "nope"); }},
      {"tokenizer.ggml.tokens: the key is missing", [](Metadata& m) { m.erase("tokenizer.ggml.tokens"); }},
      {"tokenizer.ggml.tokens: the array is empty", [](Metadata& m) { m.set_strings("tokenizer.ggml.tokens", {}); }},
      {"tokenizer.ggml.tokens: an array of strings expected",
       [](Metadata& m) { m.set_f32s("tokenizer.ggml.tokens", std::vector<float>{1}); }},
      {"tokenizer.ggml.token_type", [](Metadata& m) { m.set_i32s("tokenizer.ggml.token_type", std::vector<int>{1}); }},
      {"tokenizer.ggml.merges: the key is missing", [](Metadata& m) { m.erase("tokenizer.ggml.merges"); }},
      {"tokenizer.ggml.merges: element 0 is 'ab'", [](Metadata& m) { m.set_strings("tokenizer.ggml.merges", {"ab"}); }},
      {"tokenizer.ggml.suppress_tokens: element 0 is 99999",
       [](Metadata& m) { m.set_i32s("tokenizer.ggml.suppress_tokens", std::vector<int>{99999}); }},
  };
  for (const Case& c : cases) {
    Metadata m = bpe_metadata(some_merges(), "gpt-2");
    c.spoil(m);
    EXPECT_NE(load_error(m).find(c.expected), std::string::npos) << c.expected << " not in " << load_error(m);
  }
  Metadata scores = spm_metadata({"a"});
  scores.set_f32s("tokenizer.ggml.scores", std::vector<float>{0, 1});
  EXPECT_NE(load_error(scores).find("test.gguf: tokenizer.ggml.scores: 260 numbers expected"), std::string::npos);
  scores.set_f32s("tokenizer.ggml.scores", std::vector<float>(260, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_NE(load_error(scores).find("not a number"), std::string::npos);
}

TEST(VocabLoad, SaysHowManyTokensNoTextBecomes) {
  std::string log;
  const auto warning_of = [&log](const Metadata& metadata) {
    log.clear();
    ggml::set_log_sink([](ggml::LogLevel, std::string_view text, void* to) { *static_cast<std::string*>(to) += text; },
                       &log);
    (void)load(metadata);
    ggml::set_log_sink(nullptr, nullptr);
    return log;
  };
  EXPECT_EQ(warning_of(spm_metadata({"a", "b"})), "");
  EXPECT_NE(warning_of(spm_metadata({"a", "", "", "b"})).find("of 263 texts 2 are empty: no prompt"), std::string::npos)
      << log;
  EXPECT_NE(warning_of(spm_metadata({"a", "b", "b", "a"}))
                .find("of 263 texts 0 are empty, 2 equal to the text of an earlier one (the first is token 261, 'b')"),
            std::string::npos)
      << log;
}

TEST(VocabLoad, AKeyOfAWrongTypeIsToldWithTheFilesName) {
  const auto message = [](auto set, const char* key) {
    Metadata m = spm_metadata({"a"});
    set(m, std::string("tokenizer.ggml.") + key);
    return load_error(m);
  };
  const auto as_text = [](Metadata& m, const std::string& key) { m.set_string(key, "x"); };
  for (const char* key : {"bos_token_id", "add_bos_token", "token_type", "suppress_tokens"})
    EXPECT_EQ(message(as_text, key).find("test.gguf: metadata key 'tokenizer.ggml." + std::string(key) + "' is stored"),
              0u)
        << message(as_text, key);
}

TEST(VocabLoad, IgnoresSpecialIdsOutsideTheVocabulary) {
  Metadata m = spm_metadata({"a"});
  m.set_u32("tokenizer.ggml.eos_token_id", 5000);
  m.set_u32("tokenizer.ggml.bos_token_id", 4294967295U);
  const Vocab vocab = load(m);
  EXPECT_EQ(vocab.special().eos, 2);
  EXPECT_EQ(vocab.special().bos, 1);
}

TEST(VocabLoad, AVocabularyOfKindNoneHasIdsOnly) {
  Metadata m;
  m.set_string("tokenizer.ggml.model", "none");
  const Vocab vocab = load(m);
  EXPECT_EQ(vocab.kind(), VocabKind::none);
  EXPECT_THROW((void)vocab.tokenize("a", {}), ggml::Error);
}

TEST(Vocab, RefusesIdsOutsideTheVocabulary) {
  const Vocab vocab = load(spm_metadata({"a"}));
  for (const Token t : {-1, 260, std::numeric_limits<Token>::max(), std::numeric_limits<Token>::min()}) {
    EXPECT_THROW((void)vocab.piece(t, SpecialText::show), ggml::Error);
    EXPECT_THROW((void)vocab.text(t), ggml::Error);
    EXPECT_FALSE(vocab.is_eog(t));
    EXPECT_FALSE(vocab.contains(t));
  }
}

TEST(EndOfGeneration, AWordSpeltLikeAnEndTagDoesNotEndUnlessNothingElseDoes) {
  Metadata m = spm_metadata({"a", "<end_of_turn>"});
  std::vector<std::int32_t> types(261, 1);
  m.set_i32s("tokenizer.ggml.token_type", types);
  m.set_u32("tokenizer.ggml.eos_token_id", 260);
  const Vocab vocab = load(m);
  EXPECT_FALSE(vocab.is_eog(2));
  EXPECT_TRUE(vocab.is_eog(260));
  EXPECT_EQ(vocab.special().eot, 260);
  EXPECT_TRUE(load(spm_metadata({"a"})).is_eog(2));
}

TEST(EndOfGeneration, HarmonyMessagesDoNotEndTheTurn) {
  const Vocab vocab = load(spm_metadata({"<|return|>", "<|call|>", "<|end|>", "<|channel|>"}));
  EXPECT_TRUE(vocab.is_eog(vocab.find("<|return|>")));
  EXPECT_TRUE(vocab.is_eog(vocab.find("<|call|>")));
  EXPECT_FALSE(vocab.is_eog(vocab.find("<|end|>")) && vocab.special().eot != vocab.find("<|end|>"));
  EXPECT_EQ(vocab.type(vocab.find("<|channel|>")), TokenType::user_defined);
}

TEST(Detokenize, CleansSpacesOnlyInTheListCall) {
  const Vocab vocab = load(bpe_metadata(some_merges(), "gpt-2"));
  ASSERT_TRUE(vocab.clean_spaces());
  const auto tokens = vocab.tokenize("so . it 's , we 've ! I 'll", {});
  EXPECT_EQ(vocab.detokenize(tokens, {}), "so. it's, we've! I 'll");
  EXPECT_EQ(vocab.pieces(tokens, SpecialText::show), "so . it 's , we 've ! I 'll");
}

// The tokenizers of the tiny models, with what both references make of one text.
TEST(TinyModels, TokeniseAsTheReferencesDo) {
  for (const char* name : {"tiny-bpe", "tiny-spm", "tiny-wpm"}) {
    const auto base = tandem::data_dir() / "tokenizers" / name;
    const Vocab vocab = load(ggml::gguf::File::open(base.string() + ".gguf").metadata());
    const auto golden = nlohmann::json::parse(tandem::load_text(base.string() + ".json"));
    for (const auto& c : golden["cases"]) {
      const std::string text = c["text"].get<std::string>();
      const auto ids = c["ids"].get<std::vector<Token>>();
      EXPECT_EQ(vocab.tokenize(text, {.add_special = true, .parse_special = true}), ids) << name;
      EXPECT_EQ(vocab.tokenize(text, {}), c["ids_without_special"].get<std::vector<Token>>()) << name;
      EXPECT_EQ(vocab.detokenize(ids, {}), c["detokenized"].get<std::string>()) << name;
    }
    const auto pieces = golden["pieces_hex"].get<std::vector<std::string>>();
    ASSERT_EQ(pieces.size(), static_cast<std::size_t>(vocab.n_tokens()));
    for (Token t = 0; t < vocab.n_tokens(); ++t) {
      std::string hex;
      for (const char ch : vocab.piece(t, SpecialText::show)) hex += ggml::strf("%02x", static_cast<unsigned char>(ch));
      EXPECT_EQ(hex, pieces[static_cast<std::size_t>(t)]) << name << " token " << t;
    }
  }
}

TEST(RoundTrip, ByteLevelAndByteFallbackVocabulariesLoseNothing) {
  const Vocab bpe = load(bpe_metadata(some_merges(), "llama-bpe"));
  const Vocab spm = load(spm_metadata({"▁", "a", "th", "the"}));
  for (const std::string text : {"", " ", "  a", "\n\n\t x", "the 😀 日本 é", "a\0b", "1234567 x's", "\r\n", "½ ² ⅷ"}) {
    EXPECT_EQ(bpe.pieces(bpe.tokenize(text, {}), SpecialText::show), text);
    EXPECT_EQ(spm.detokenize(spm.tokenize(text, {}), {}), text);
  }
}

TEST(Threads, OneVocabularyServesManyAtOnce) {
  const Vocab vocab = load(bpe_metadata(some_merges(), "llama-bpe"));
  const std::string text = "the hello and 123 <tool> \xF0\x9F\x98\x80 in the end";
  const auto expected = vocab.tokenize(text, {.parse_special = true});
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) wrong += vocab.tokenize(text, {.parse_special = true}) != expected;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace llama
