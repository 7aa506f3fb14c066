#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "ggml/gguf.h"
#include "llama/vocab.h"
#include "nfc.h"
#include "pretokenizer.h"
#include "test_support.h"
#include "utf8_decode.h"
#include "vocab_data.h"

// Agreement with the big vocabularies of the shared folder, which is not part of the repository.

namespace llama {
namespace {

using nlohmann::json;

std::optional<std::filesystem::path> vocab_dir() {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data" / "vocab")) return std::nullopt;
  return *shared / "data" / "vocab";
}

Vocab load(const std::filesystem::path& path) {
  return Vocab::load(ggml::gguf::File::open(path.string()).metadata(), path.string());
}

json load_json(const std::filesystem::path& path) {
  return json::parse(tandem::load_text(path));
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

class GoldenVocab : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    dir_ = vocab_dir();
    if (!dir_) GTEST_SKIP() << "no shared folder with vocabularies";
  }
  [[nodiscard]] std::string name() const { return GetParam(); }
  [[nodiscard]] std::filesystem::path file(const std::string& suffix) const { return *dir_ / (name() + suffix); }
  std::optional<std::filesystem::path> dir_;
};

TEST_P(GoldenVocab, TokenisesEveryCaseAsTheModelDoes) {
  const Vocab vocab = load(file(".gguf"));
  const json golden = load_json(file(".golden.json"));
  EXPECT_EQ(vocab.n_tokens(), golden["n_vocab"].get<int>());
  EXPECT_EQ(vocab.add_bos(), golden["add_bos_default"].get<bool>());
  EXPECT_EQ(vocab.add_eos(), golden["add_eos_default"].get<bool>());
  EXPECT_EQ(vocab.add_sep(), golden["add_sep_default"].get<bool>());
  std::set<std::string> plain_given;  // names with an answer of their own for unparsed special tokens
  for (const json& c : golden["cases"]) {
    if (!c["special"].get<bool>()) plain_given.insert(c["name"].get<std::string>());
  }
  for (const json& c : golden["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>() + ": " + c["text"].dump().substr(0, 200));
    const std::string text = c["text"].get<std::string>();
    const bool special = c["special"].get<bool>();
    // Where a case has `ids_llamacpp` too, `ids` is what the model's own tokenizer gives, which is followed.
    const auto ids = c["ids"].get<std::vector<Token>>();
    EXPECT_EQ(vocab.tokenize(text, {.parse_special = special}), ids);
    const bool has_control = std::any_of(ids.begin(), ids.end(), [&](Token t) { return vocab.is_control(t); });
    if (special && !has_control && !plain_given.contains(c["name"].get<std::string>())) {
      EXPECT_EQ(vocab.tokenize(text, {}), ids);
    }
    if (c.contains("detok") && c["detok"].is_string() && !c.contains("ids_llamacpp")) {
      EXPECT_EQ(vocab.detokenize(ids, {}), c["detok"].get<std::string>());
    }
  }
}

TEST_P(GoldenVocab, AgreesWithTheInputAndOutputPairs) {
  if (!std::filesystem::exists(file(".gguf.inp"))) GTEST_SKIP() << "the vocabulary has no pairs";
  const Vocab vocab = load(file(".gguf"));
  const std::string inputs = tandem::load_text(file(".gguf.inp"));
  std::istringstream lines(tandem::load_text(file(".gguf.out")));
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string line;
  int n = 0;
  for (std::size_t begin = 0; std::getline(lines, line); ++n) {
    const std::size_t end = std::min(inputs.find(separator, begin), inputs.size());
    std::istringstream numbers(line);
    std::vector<Token> ids;
    for (Token id = 0; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(vocab.tokenize(inputs.substr(begin, end - begin), {}), ids) << "input " << n;
    begin = std::min(end + separator.size(), inputs.size());
  }
  EXPECT_GT(n, 40);
}

TEST_P(GoldenVocab, GivesThePiecesAndTheEndSet) {
  if (!std::filesystem::exists(file(".pieces.json"))) GTEST_SKIP() << "the vocabulary has no pieces file";
  const Vocab vocab = load(file(".gguf"));
  const json golden = load_json(file(".pieces.json"));
  std::set<Token> eog = golden["eog"].get<std::set<Token>>();
  // llama.cpp ends at any token spelt </s>, also where it is an ordinary word; this does not.
  const Token slash_s = vocab.find("</s>");
  const bool word = slash_s != kNoToken && !vocab.is_control(slash_s);
  if (word) eog.erase(slash_s);
  EXPECT_EQ(std::set<Token>(vocab.eog_tokens().begin(), vocab.eog_tokens().end()), eog);
  for (const json& entry : golden["pieces"]) {
    const auto id = entry[0].get<Token>();
    if (word && id == slash_s) continue;
    const std::string shown = from_hex(entry[1].get<std::string>());
    const std::string plain = entry[2].is_null() ? shown : from_hex(entry[2].get<std::string>());
    EXPECT_EQ(vocab.piece(id, SpecialText::show), shown) << "token " << id << " " << vocab.text(id);
    EXPECT_EQ(vocab.piece(id, SpecialText::hide), plain) << "token " << id << " " << vocab.text(id);
  }
}

TEST_P(GoldenVocab, HandlesInvalidUtf8) {
  const json all = load_json(*dir_ / "invalid-utf8.json")["vocabs"];
  if (!all.contains(name())) GTEST_SKIP() << "no broken strings for the vocabulary";
  const Vocab vocab = load(file(".gguf"));
  for (const json& c : all[name()]) {
    const std::string hex = c["hex"].get<std::string>();
    // Overlong forms and encoded surrogates are bad bytes here; the reference decodes them.
    const bool bytewise = vocab.kind() == VocabKind::spm || vocab.kind() == VocabKind::rwkv;
    const bool stricter = !bytewise && (hex == "c0af" || hex == "eda080");
    const std::string text = from_hex(hex);
    if (stricter) {
      std::string replaced;
      for (std::size_t i = 0; i < text.size(); ++i) replaced += "\xEF\xBF\xBD";
      EXPECT_EQ(vocab.tokenize(text, {}), vocab.tokenize(replaced, {})) << hex;
    } else {
      EXPECT_EQ(vocab.tokenize(text, {}), c["ids"].get<std::vector<Token>>()) << hex;
    }
  }
}

// What comes back from the tokens of a text: the text, as far as the algorithm keeps it.
std::string round_trip(const Vocab& vocab, const std::string& text) {
  return vocab.kind() == VocabKind::spm ? vocab.detokenize(vocab.tokenize(text, {}), {})
                                        : vocab.pieces(vocab.tokenize(text, {}), SpecialText::show);
}

// Whether a byte-level vocabulary has every byte of the text; Falcon's has not.
bool has_bytes(const Vocab& vocab, const std::string& text) {
  if (vocab.kind() != VocabKind::bpe || find_pre_tokenizer(vocab.pre_name())->form != BpeForm::byte_level) return true;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    std::string printable;
    append_utf8(printable, byte_to_printable(static_cast<unsigned char>(c)));
    return vocab.find(printable) != kNoToken;
  });
}

// WPM and UGM drop case, accents or spaces; a vocabulary in normal form C gives that form back; U+2581 is a space where
// spaces are written so; behind Phi-3's </s>, which is found in plain text too, a space is put.
TEST_P(GoldenVocab, GivesTheTextBack) {
  const Vocab vocab = load(file(".gguf"));
  if (vocab.kind() == VocabKind::wpm || vocab.kind() == VocabKind::ugm) GTEST_SKIP() << "the algorithm changes text";
  const json golden = load_json(file(".golden.json"));
  std::size_t n = 0;
  for (const json& c : golden["cases"]) {
    const std::string text = c["text"].get<std::string>();
    if (text.find("\xE2\x96\x81") != std::string::npos || text.find("</s>") != std::string::npos) continue;
    if (!has_bytes(vocab, text)) continue;
    std::string storage;
    const bool composes = find_pre_tokenizer(vocab.pre_name()) != nullptr && find_pre_tokenizer(vocab.pre_name())->nfc;
    EXPECT_EQ(round_trip(vocab, text), composes ? to_nfc(text, storage) : std::string_view(text)) << c["name"];
    ++n;
  }
  EXPECT_GT(n, 100U);
}

TEST_P(GoldenVocab, TakesAnyBytes) {
  const Vocab vocab = load(file(".gguf"));
  std::vector<std::string> texts;
  const json broken = load_json(*dir_ / "invalid-utf8.json")["vocabs"];
  for (const auto& [other, cases] : broken.items()) {
    for (const json& c : cases) texts.push_back(from_hex(c["hex"].get<std::string>()));
  }
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::size_t n = random() % 24; n > 0; --n) {
      // Bytes, lead bytes, characters: random bytes alone seldom begin anything.
      constexpr const char* kParts[] = {"a", " ", "é", "日", "😀", "\xE2\x96\x81", "<", "\n", "\xE2\x96", "\xF0\x9F"};
      const std::size_t k = random() % (2 * std::size(kParts));
      text += k < std::size(kParts) ? std::string(kParts[k]) : std::string(1, static_cast<char>(random()));
    }
    texts.push_back(std::move(text));
  }
  for (const std::string& text : texts) {
    for (const bool special : {false, true}) {
      for (const Token t : vocab.tokenize(text, {.add_special = special, .parse_special = special})) {
        ASSERT_TRUE(vocab.contains(t));
      }
    }
    // A vocabulary with all 256 bytes keeps what was broken: as it is, or as U+FFFD.
    const bool keeps = vocab.kind() == VocabKind::spm || vocab.kind() == VocabKind::rwkv;
    if (keeps && text.find("\xE2\x96\x81") == std::string::npos) {
      ASSERT_EQ(round_trip(vocab, text), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenVocab,
                         ::testing::Values("llama-spm", "llama3", "qwen3", "gemma3-spm", "baichuan", "bert-bge",
                                           "deepseek-coder", "deepseek-llm", "deepseek-v3", "falcon", "gemma4-bpe-mini",
                                           "gpt-2", "gpt-neox", "mpt", "phi-3", "refact", "rwkv-mini", "starcoder",
                                           "ugm-plain", "ugm-t5"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GoldenSplitter, CutsEveryStringOfEveryGroup) {
  const auto dir = vocab_dir();
  if (!dir) GTEST_SKIP() << "no shared folder with vocabularies";
  const json golden = load_json(*dir / "pretok-splits.json")["groups"];
  for (const auto& [group, cases] : golden.items()) {
    const Splitter splitter(group);
    std::vector<std::string_view> pieces;
    for (const json& c : cases) {
      const std::string text = c["text"].get<std::string>();
      splitter.split(text, pieces);
      EXPECT_EQ(std::vector<std::string>(pieces.begin(), pieces.end()), c["pieces"].get<std::vector<std::string>>())
          << group << ": " << c["text"].dump().substr(0, 200);
    }
  }
}

// Some rules stand in the table in another form than published, one that takes linear time on hostile text. They must
// cut every text alike.
TEST(GoldenSplitter, CutsRandomTextAsThePublishedRulesDo) {
  const auto dir = vocab_dir();
  if (!dir) GTEST_SKIP() << "no shared folder with vocabularies";
  const json groups = load_json(*dir / "pretokenizers.json")["groups"];
  EXPECT_EQ(groups.size(), pre_tokenizer_groups().size());
  constexpr const char* kParts[] = {
      "a",      "B",      "s",  "'s", "'LL", " ",  "  ",  "\t",       "\n",      "\r\n",   "\u00A0", "\u2028",
      "\u3000", "\u180E", "1",  "23", "٣",   "½",  "456", "é",        "e\u0301", "\u0301", "я",      "Ж",
      "ǅ",      "日",     "本", "〇", "か",  "ア", "한",  "ㄅ",       "ไ",       "\u0E31", "ا",      "!",
      "\"",     "#x",     ".",  ",",  "~",   "$",  "+",   "_",        "-",       "/",      "、",     "…",
      "😀",      "\u200D", "\0", "ſ",  "<",   "(",  "|",   "IMGIMGAAZ"};
  std::mt19937 random(12);
  const int n_rounds = tandem::rounds(1500);
  for (const auto& [name, published] : groups.items()) {
    const auto texts = published.get<std::vector<std::string>>();
    const std::vector<std::string_view> regexes(texts.begin(), texts.end());
    const Splitter ours(name), theirs(name, regexes);
    std::vector<std::string_view> pieces, expected;
    for (int round = 0; round < n_rounds; ++round) {
      std::string text;
      for (std::size_t n = random() % 16; n > 0; --n) {
        const std::string part = kParts[random() % std::size(kParts)];
        const std::size_t longest = round % 100 == 0 ? 700 : 4;
        for (std::size_t k = random() % 4 == 0 ? 1 + random() % longest : 1; k > 0; --k) text += part;
      }
      ours.split(text, pieces);
      theirs.split(text, expected);
      ASSERT_EQ(pieces, expected) << name << ": " << json(text).dump();
    }
  }
}

TEST(GoldenSplitter, KnowsEveryNameWithItsFlags) {
  const auto dir = vocab_dir();
  if (!dir) GTEST_SKIP() << "no shared folder with vocabularies";
  const json names = load_json(*dir / "pretokenizers.json")["names"];
  EXPECT_EQ(names.size(), pre_tokenizer_rows().size());
  for (const auto& [name, row] : names.items()) {
    const PreTokenizerRow* known = find_pre_tokenizer(name);
    ASSERT_NE(known, nullptr) << name;
    EXPECT_EQ(known->group, row["group"].get<std::string>()) << name;
    EXPECT_EQ(known->clean_spaces, row["clean_spaces"].get<bool>()) << name;
    EXPECT_EQ(known->ignore_merges, row["ignore_merges"].get<bool>()) << name;
    EXPECT_EQ(known->add_bos, row["add_bos"].get<bool>()) << name;
    EXPECT_EQ(known->add_sep, row.value("add_sep", false)) << name;
    EXPECT_EQ(known->form == BpeForm::byte_level, row.value("byte_encode", true)) << name;
  }
}

}  // namespace
}  // namespace llama
