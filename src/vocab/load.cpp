#include <algorithm>
#include <cmath>
#include <limits>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "utf8_decode.h"
#include "vocab_data.h"

namespace llama {

namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::LogLevel;
using ggml::strf;
using ggml::gguf::Array;
using ggml::gguf::Metadata;
using ggml::gguf::ValueType;

constexpr ModelRow kModels[] = {
    {.model = "llama",
     .kind = VocabKind::spm,
     .bos = 1,
     .eos = 2,
     .unk = 0,
     .add_bos = true,
     .add_space_prefix = true,
     .make = make_spm},
    {.model = "gpt2", .kind = VocabKind::bpe, .bos = 11, .eos = 11, .make = make_bpe},
    {.model = "gemma4", .kind = VocabKind::bpe, .clean_spaces = true, .pre = "gemma4", .make = make_bpe},
    {.model = "bert",
     .kind = VocabKind::wpm,
     .bos = 101,
     .unk = 100,
     .sep = 102,
     .pad = 0,
     .mask = 103,
     .add_bos = true,
     .add_sep = true,
     .clean_spaces = true,
     .make = make_wpm},
    {.model = "t5", .kind = VocabKind::ugm, .eos = 1, .unk = 2, .pad = 0, .add_eos = true, .make = make_ugm},
    {.model = "rwkv", .kind = VocabKind::rwkv, .make = make_rwkv},
    {.model = "plamo2", .kind = VocabKind::plamo, .bos = 1, .eos = 2, .unk = 0, .pad = 3, .make = make_plamo},
    {.model = "whitespace", .kind = VocabKind::bpe, .bos = 11, .eos = 11, .pre = "whitespace", .make = make_bpe},
    {.model = "none", .kind = VocabKind::none},
    {.model = "no_vocab", .kind = VocabKind::none},
};

// `<file>: <key>: <what>`, the form of all messages of this loader.
[[noreturn]] void fail(const VocabData& data, const std::string& key, const std::string& what, std::string hint = {}) {
  throw Error(ErrorCode::invalid_file, strf("%s: %s: %s", data.file.c_str(), key.c_str(), what.c_str()),
              std::move(hint));
}

const ModelRow& find_model(const Metadata& metadata, const VocabData& data) {
  const auto name = metadata.get_string("tokenizer.ggml.model");
  if (!name) fail(data, "tokenizer.ggml.model", "the key is missing", "convert the model again, with its tokenizer");
  std::string known;
  for (const ModelRow& row : kModels) {
    if (row.model == *name) return row;
    known.append(known.empty() ? "" : ", ").append(row.model);
  }
  throw Error(ErrorCode::unsupported,
              strf("%s: tokenizer.ggml.model: %s is not a known tokenizer", data.file.c_str(),
                   ggml::gguf::quoted(*name).c_str()),
              "known are: " + known);
}

const PreTokenizerRow* find_pre(const Metadata& metadata, const ModelRow& row, const VocabData& data) {
  const auto stored = metadata.get_string("tokenizer.ggml.pre");
  std::string name(stored.value_or(row.pre));
  if (name.empty()) {
    ggml::logf(
        LogLevel::warn,
        "%s: tokenizer.ggml.pre is missing: text is cut by the 'default' rules, which fit few models; the output "
        "may be degraded. Convert the model again",
        data.file.c_str());
    name = "default";
  }
  const PreTokenizerRow* pre = find_pre_tokenizer(name);
  if (pre != nullptr) return pre;
  std::string known;
  for (const PreTokenizerRow& each : pre_tokenizer_rows()) known.append(known.empty() ? "" : ", ").append(each.name);
  throw Error(ErrorCode::unsupported,
              strf("%s: tokenizer.ggml.pre: %s is not a known pre-tokenizer", data.file.c_str(),
                   ggml::gguf::quoted(name).c_str()),
              "known are: " + known);
}

void read_texts(const Metadata& metadata, VocabData& data) {
  const std::string key = "tokenizer.ggml.tokens";
  const Array* tokens = metadata.get_array(key);
  if (tokens == nullptr) fail(data, key, "the key is missing", "convert the model again, with its tokenizer");
  if (tokens->element != ValueType::string) {
    fail(data, key,
         "an array of strings expected, the file has an array of " +
             std::string(ggml::gguf::value_type_name(tokens->element)));
  }
  if (tokens->size() == 0) fail(data, key, "the array is empty");
  if (tokens->size() > static_cast<std::size_t>(std::numeric_limits<Token>::max())) {
    fail(data, key, strf("%zu tokens, at most 2147483647 can be numbered", tokens->size()));
  }
  data.texts = tokens->strings;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < data.texts.size(); ++i) {
    if (data.texts[i].empty()) data.texts[i] = strf("[EMPTY_%zu]", i);
    bytes += data.texts[i].size();
  }
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    fail(data, key, strf("the texts take %zu bytes, at most 4294967295 are possible", bytes));
  }
}

void read_types(const Metadata& metadata, VocabData& data) {
  const std::string key = "tokenizer.ggml.token_type";
  data.types.assign(data.texts.size(), TokenType::normal);
  const Array* types = metadata.get_array(key);
  if (types == nullptr) return;
  if (types->element == ValueType::string || types->size() < data.texts.size()) {
    fail(data, key,
         strf("%zu integers expected (one per token), the file has %zu of type %s", data.texts.size(), types->size(),
              std::string(ggml::gguf::value_type_name(types->element)).c_str()));
  }
  for (std::size_t i = 0; i < data.types.size(); ++i) {
    constexpr TokenType kByNumber[] = {TokenType::undefined, TokenType::normal,       TokenType::unknown,
                                       TokenType::control,   TokenType::user_defined, TokenType::unused,
                                       TokenType::byte};
    const std::int64_t number = types->integer(i);
    data.types[i] = number >= 0 && number < static_cast<std::int64_t>(std::size(kByNumber)) ? kByNumber[number]
                                                                                            : TokenType::undefined;
  }
}

void read_scores(const Metadata& metadata, VocabData& data) {
  const bool scored = data.kind == VocabKind::spm || data.kind == VocabKind::ugm || data.kind == VocabKind::plamo;
  if (!scored) return;
  const std::string key = "tokenizer.ggml.scores";
  const Array* scores = metadata.get_array(key);
  if (scores == nullptr) return;
  if (scores->element == ValueType::string || scores->size() < data.texts.size()) {
    fail(data, key,
         strf("%zu numbers expected (one per token), the file has %zu of type %s", data.texts.size(), scores->size(),
              std::string(ggml::gguf::value_type_name(scores->element)).c_str()));
  }
  data.scores.resize(data.texts.size());
  for (std::size_t i = 0; i < data.scores.size(); ++i) {
    data.scores[i] = static_cast<float>(scores->number(i));
    if (std::isnan(data.scores[i])) fail(data, key, strf("the score of token %zu is not a number", i));
  }
}

void read_id(const Metadata& metadata, const VocabData& data, const char* name, Token& id) {
  const std::string key = std::string("tokenizer.ggml.") + name;
  const auto value = metadata.get_integer(key);
  if (!value) return;
  if (*value < 0 || *value >= data.n_tokens()) {
    ggml::logf(LogLevel::warn, "%s: %s: %lld is outside the vocabulary of %d tokens and is ignored", data.file.c_str(),
               key.c_str(), static_cast<long long>(*value), data.n_tokens());
    return;
  }
  id = static_cast<Token>(*value);
}

void read_special_ids(const Metadata& metadata, const ModelRow& row, VocabData& data) {
  SpecialTokens& s = data.special;
  const auto fallback = [&](Token id) { return id < data.n_tokens() ? id : kNoToken; };
  s.bos = data.pre != nullptr && !data.pre->default_bos ? kNoToken : fallback(row.bos);
  s.eos = fallback(row.eos);
  s.unk = fallback(row.unk);
  s.sep = fallback(row.sep);
  s.pad = fallback(row.pad);
  s.mask = fallback(row.mask);
  struct Key {
    const char* name;
    Token& id;
  };
  const Key keys[] = {
      {"cls_token_id", s.bos},         {"bos_token_id", s.bos},         {"eos_token_id", s.eos},
      {"eot_token_id", s.eot},         {"eom_token_id", s.eom},         {"unknown_token_id", s.unk},
      {"seperator_token_id", s.sep},   {"padding_token_id", s.pad},     {"mask_token_id", s.mask},
      {"prefix_token_id", s.fim_pre},  {"suffix_token_id", s.fim_suf},  {"middle_token_id", s.fim_mid},
      {"fim_pre_token_id", s.fim_pre}, {"fim_suf_token_id", s.fim_suf}, {"fim_mid_token_id", s.fim_mid},
      {"fim_pad_token_id", s.fim_pad}, {"fim_rep_token_id", s.fim_rep}, {"fim_sep_token_id", s.fim_sep},
  };
  for (const Key& key : keys) {
    // BERT's [CLS] takes the place of a BOS; elsewhere a [CLS] does not stand at the front.
    if (std::string_view(key.name) == "cls_token_id" && data.kind != VocabKind::wpm) continue;
    read_id(metadata, data, key.name, key.id);
  }
}

void read_flags(const Metadata& metadata, const ModelRow& row, VocabData& data) {
  const auto flag = [&](const char* name, bool fallback) {
    return metadata.get_bool(std::string("tokenizer.ggml.") + name).value_or(fallback);
  };
  const PreTokenizerRow* pre = data.pre;
  data.add_bos = flag("add_bos_token", row.add_bos || (pre != nullptr && pre->add_bos));
  if (pre != nullptr && pre->force_bos) data.add_bos = true;
  data.add_eos = flag("add_eos_token", row.add_eos);
  data.add_sep = flag("add_sep_token", row.add_sep || (pre != nullptr && pre->add_sep));
  data.add_space_prefix = flag("add_space_prefix", row.add_space_prefix);
  data.remove_extra_whitespaces = flag("remove_extra_whitespaces", false);
  data.clean_spaces = row.clean_spaces || (pre != nullptr && pre->clean_spaces);
}

void read_suppressed(const Metadata& metadata, VocabData& data) {
  const std::string key = "tokenizer.ggml.suppress_tokens";
  const Array* ids = metadata.get_array(key);
  if (ids == nullptr) return;
  if (ids->element == ValueType::string) fail(data, key, "an array of integers expected, the file has strings");
  for (std::size_t i = 0; i < ids->size(); ++i) {
    const std::int64_t id = ids->integer(i);
    if (id < 0 || id >= data.n_tokens()) {
      fail(data, key,
           strf("element %zu is %lld, outside the vocabulary of %d tokens", i, static_cast<long long>(id),
                data.n_tokens()));
    }
    data.suppress.push_back(static_cast<Token>(id));
  }
  std::sort(data.suppress.begin(), data.suppress.end());
  data.suppress.erase(std::unique(data.suppress.begin(), data.suppress.end()), data.suppress.end());
}

// Converters store user-defined runs of spaces with real spaces, while the model's own tokenizer knows them with
// U+2581. The alias lets a literal U+2581 in the text find them, as the model's tokenizer does.
void add_space_aliases(VocabData& data) {
  if (data.kind != VocabKind::spm && data.kind != VocabKind::bpe) return;
  if (!data.uses_marks()) return;
  std::vector<Token> ids;
  for (Token t = 0; t < data.n_tokens(); ++t) {
    const std::string& text = data.text(t);
    if (data.type(t) != TokenType::user_defined || text.find_first_not_of(' ') != std::string::npos) continue;
    if (data.index.find(spaces_to_marks(text)) == kNoToken) ids.push_back(t);
  }
  data.aliases.reserve(ids.size());  // the index keeps views: no reallocation
  for (const Token t : ids) {
    data.aliases.push_back(spaces_to_marks(data.text(t)));
    data.index.insert(data.aliases.back(), t);
  }
}

/// Tokens that no text becomes: a whole vocabulary of them would turn every prompt into an empty one without a word.
void report_useless(const Metadata& metadata, const VocabData& data, Token first_equal, int n_equal) {
  const std::vector<std::string>& given = metadata.get_array("tokenizer.ggml.tokens")->strings;
  const auto n_empty = std::count_if(given.begin(), given.end(), [](const std::string& text) { return text.empty(); });
  if (n_empty == 0 && n_equal == 0) return;
  std::string equal;
  if (n_equal > 0) {
    equal = strf(", %d equal to the text of an earlier one (the first is token %d, %s)", n_equal, first_equal,
                 ggml::gguf::quoted(data.text(first_equal)).c_str());
  }
  ggml::logf(ggml::LogLevel::warn,
             "%s: tokenizer.ggml.tokens: of %d texts %d are empty%s: no prompt becomes these tokens", data.file.c_str(),
             data.n_tokens(), static_cast<int>(n_empty), equal.c_str());
}

void build_index(const Metadata& metadata, VocabData& data) {
  data.index.reserve(data.texts.size());
  Token first_equal = kNoToken;
  int n_equal = 0;
  for (Token t = 0; t < data.n_tokens(); ++t) {
    if (data.index.insert(data.text(t), t) || n_equal++ > 0) continue;
    first_equal = t;
  }
  report_useless(metadata, data, first_equal, n_equal);
  add_space_aliases(data);
  for (int byte = 0; byte < 256; ++byte) {
    Token& token = data.byte_tokens[static_cast<std::size_t>(byte)];
    token = data.index.find(strf("<0x%02X>", static_cast<unsigned>(byte)));
    if (token == kNoToken) token = data.index.find(std::string(1, static_cast<char>(byte)));
  }
}

// White space around special tokens is not told in the file; the models that need it are known by name.
void read_strips(const Metadata& metadata, VocabData& data) {
  std::string name(metadata.get_string("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string_view arch = metadata.get_string("general.architecture").value_or("");
  const std::string_view pre = data.pre != nullptr ? data.pre->name : std::string_view{};
  const auto strip_left = [&](std::string_view text) {
    if (const Token t = data.index.find(text); t != kNoToken) {
      data.strips.resize(data.texts.size());
      data.strips[static_cast<std::size_t>(t)].left = true;
    }
  };
  if (pre == "jina-v2-de" || pre == "jina-v2-es" || pre == "jina-v2-code" || arch == "nomic-bert-moe" ||
      arch == "jina-bert-v3") {
    strip_left("<mask>");
  }
  if (name.find("modern-bert") != std::string::npos) strip_left("[MASK]");
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return;
  data.strips.resize(data.texts.size());
  for (Token t = 0; t < data.n_tokens(); ++t) {
    if (data.type(t) != TokenType::control && data.type(t) != TokenType::unknown) continue;
    const std::string& text = data.text(t);
    data.strips[static_cast<std::size_t>(t)].right = text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
  }
}

}  // namespace

std::span<const ModelRow> model_rows() {
  return kModels;
}

int byte_token_value(std::string_view text) noexcept {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

void load_vocab_data(const Metadata& metadata, VocabData& data, const ModelRow*& row) {
  row = &find_model(metadata, data);
  data.kind = row->kind;
  data.byte_tokens.fill(kNoToken);
  if (data.kind == VocabKind::none) return;
  if (data.kind == VocabKind::bpe) data.pre = find_pre(metadata, *row, data);
  read_texts(metadata, data);
  read_types(metadata, data);
  read_scores(metadata, data);
  build_index(metadata, data);
  read_special_ids(metadata, *row, data);
  read_flags(metadata, *row, data);
  read_suppressed(metadata, data);
  resolve_special_tokens(data);
  read_strips(metadata, data);
}

}  // namespace llama
