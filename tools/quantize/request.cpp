#include "request.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "common/args/option.h"
#include "common/setup/setup.h"
#include "ggml/error.h"

namespace quantize {
namespace {

using common::QuantizeSettings;
using ggml::Error;
using ggml::ErrorCode;

constexpr std::string_view kCopy = "COPY";
constexpr std::string_view kSuffix = ".gguf";

bool is_type(const std::string& word) {
  return common::lower_case(word) == common::lower_case(kCopy) || llama::find_file_type(word) != nullptr;
}

[[noreturn]] void unknown_type(const std::string& word) {
  std::string list = "types:";
  for (const llama::FileType& type : llama::file_types())
    list += fmt::format("\n  {:>4}  {:12} {}", type.number, type.name, type.about);
  list += fmt::format("\n  {:>4}  {:12} {}", "", kCopy, "copy, change no weight");
  throw Error(ErrorCode::invalid_argument, fmt::format("\"{}\" is no file type", word), list);
}

/// OUT may be left out: then the type is the second word.
void read_words(const std::vector<std::string>& words, Request& request) {
  request.input = words[0];
  const bool has_output = !is_type(words[1]) && words.size() > 2;
  const std::string& type = words[has_output ? 2 : 1];
  if (!is_type(type)) unknown_type(type);
  request.params.file_type = llama::find_file_type(type);
  if (has_output) {
    request.output = words[1];
  } else {
    const std::string name =
        request.params.file_type == nullptr ? std::string(kCopy) : std::string(request.params.file_type->name);
    request.output =
        (std::filesystem::path(request.input).parent_path() / fmt::format("ggml-model-{}{}", name, kSuffix)).string();
  }
  const std::size_t used = has_output ? 3 : 2;
  if (words.size() > used + 1)
    throw Error(ErrorCode::invalid_argument, fmt::format("\"{}\" is more than was expected", words[used + 1]));
  if (words.size() == used) return;
  const std::string& number = words[used];
  constexpr int kMostThreads = 1024;
  const auto [stop, failure] = std::from_chars(number.data(), number.data() + number.size(), request.params.n_threads);
  if (failure != std::errc() || stop != number.data() + number.size() || request.params.n_threads < 1 ||
      request.params.n_threads > kMostThreads) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("\"{}\" is no number of threads from 1 to {}", number, kMostThreads));
  }
}

/// A file of PATTERN=TYPE words.
void add_rule_file(const std::string& path, std::vector<llama::TypeRule>& rules) {
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path)) throw Error(ErrorCode::not_found, path + ": cannot be read");
  for (std::string word; file >> word;) {
    const std::size_t equals = word.rfind('=');
    const auto type = equals == std::string::npos ? std::nullopt : ggml::type_from_name(word.substr(equals + 1));
    if (!type || equals == 0)
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: \"{}\" is not PATTERN=TYPE", path, word));
    rules.push_back({common::lower_case(word.substr(0, equals)), *type});
  }
}

void copy_rules(const QuantizeSettings& wanted, llama::QuantizeParams& params) {
  for (const auto& [pattern, type] : wanted.type_rules) params.type_rules.push_back({pattern, type});
  for (const std::string& path : wanted.type_rule_files) add_rule_file(path, params.type_rules);
  for (const auto& [part, type] : wanted.role_types) params.role_types.push_back({part, type});
  if (wanted.rules == "llama.cpp") params.rules = llama::MixRules::llama_cpp;
  if (wanted.rules == "ik_llama.cpp") params.rules = llama::MixRules::ik_llama_cpp;
}

}  // namespace

Request make_request(const common::Settings& settings, llama::ImportanceMatrix& importance) {
  const QuantizeSettings& wanted = settings.quantize;
  Request request;
  read_words(wanted.words, request);
  llama::QuantizeParams& params = request.params;
  params.pure = wanted.pure;
  params.allow_requantize = wanted.allow_requantize;
  params.leave_output_tensor = wanted.leave_output_tensor;
  params.ignore_imatrix_rules = wanted.ignore_imatrix_rules;
  params.output_type = wanted.output_type;
  params.token_embedding_type = wanted.token_embedding_type;
  params.per_layer_embedding_type = wanted.per_layer_embedding_type;
  params.router_type = wanted.router_type;
  params.pruned_layers = wanted.pruned_layers;
  params.keep_split = wanted.keep_split;
  params.include_weights = wanted.include_weights;
  params.exclude_weights = wanted.exclude_weights;
  params.kv_overrides = common::metadata_overrides(settings);
  copy_rules(wanted, params);
  if (!wanted.imatrix.empty()) {
    importance = llama::ImportanceMatrix::load(wanted.imatrix);
    params.importance = &importance;
    if (!wanted.hide_imatrix) params.importance_file = wanted.imatrix;
  }
  // The parts' names are made from a prefix.
  if (params.keep_split && request.output.ends_with(kSuffix))
    request.output.resize(request.output.size() - kSuffix.size());
  return request;
}

}  // namespace quantize
