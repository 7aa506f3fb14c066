// llama-quantize.
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kGroup = "Quantizing";
constexpr std::string_view kLeaveOut = "leave it out";

ggml::DType to_type(const Argument& argument, std::string_view text) {
  const std::optional<ggml::DType> type = ggml::type_from_name(text);
  if (!type) bad_value(argument, "the name of a tensor type such as q8_0");
  return *type;
}

template <class Get>
Apply type_of(Get get) {
  return [=](Target& target, const Argument& argument) { get(target.settings) = to_type(argument, argument.value()); };
}

/// PATTERN=TYPE; the pattern ends at the last '=' since types hold none.
void add_rule(Target& target, const Argument& argument, const std::string& item, bool lower) {
  const std::size_t equals = item.rfind('=');
  if (equals == std::string::npos || equals == 0) bad_value(argument, "PATTERN=TYPE");
  const std::string pattern = item.substr(0, equals);
  target.settings.quantize.type_rules.emplace_back(lower ? lower_case(pattern) : pattern,
                                                   to_type(argument, item.substr(equals + 1)));
}

void apply_tensor_type(Target& target, const Argument& argument) {
  add_rule(target, argument, argument.value(), true);
}

/// PATTERN=TYPE,PATTERN=TYPE. A pattern may hold commas: an item without '=' belongs to the next one.
void apply_custom_q(Target& target, const Argument& argument) {
  std::string item;
  for (const std::string& part : split_list(argument.value())) {
    item += (item.empty() ? "" : ",") + part;
    const std::size_t equals = item.rfind('=');
    if (equals == std::string::npos || !ggml::type_from_name(item.substr(equals + 1))) continue;
    add_rule(target, argument, item, false);
    item.clear();
  }
  if (!item.empty()) bad_value(argument, "PATTERN=TYPE,... (the end is \"" + item + "\")");
}

template <class Get>
Apply word_list(Get get) {
  return [=](Target& target, const Argument& argument) { get(target.settings).push_back(argument.value()); };
}

void apply_prune(Target& target, const Argument& argument) {
  for (const std::string& item : split_list(argument.value())) {
    constexpr std::int64_t kMostLayers = 65535;
    target.settings.quantize.pruned_layers.push_back(static_cast<int>(to_integer(argument, item, 0, kMostLayers)));
  }
}

const std::vector<Option> kRows = {
    option({"WORD"}, "", "Input, output (or none), type, and number of threads (or none).",
           [](Target& target, const Argument& argument) { target.settings.quantize.words.push_back(argument.value()); })
        .operand(),
    option({"--allow-requantize"}, "",
           "Accept weights that are quantised already; what is lost twice is lost more than once.",
           toggle([](Settings& s) -> auto& { return s.quantize.allow_requantize; })),
    option({"--leave-output-tensor"}, "", "Keep output.weight as it is.",
           toggle([](Settings& s) -> auto& { return s.quantize.leave_output_tensor; })),
    option({"--pure"}, "", "One type for all weights: no rules that give more bits to those that need them.",
           toggle([](Settings& s) -> auto& { return s.quantize.pure; })),
    option({"--imatrix"}, "FNAME", "Importance matrix of llama-imatrix, GGUF or legacy (.dat).",
           text([](Settings& s) -> auto& { return s.quantize.imatrix; })),
    option({"--include-weights"}, "NAME", "Use the importance matrix only for tensors with this in their name.",
           word_list([](Settings& s) -> auto& { return s.quantize.include_weights; }))
        .list(),
    option({"--exclude-weights"}, "NAME", "Do not use it for tensors with this in their name.",
           word_list([](Settings& s) -> auto& { return s.quantize.exclude_weights; }))
        .list(),
    option({"--hide-imatrix"}, "", "Do not record the importance matrix in the output.",
           toggle([](Settings& s) -> auto& { return s.quantize.hide_imatrix; })),
    option({"--ignore-imatrix-rules"}, "", "Allow types that need an importance matrix without one.",
           toggle([](Settings& s) -> auto& { return s.quantize.ignore_imatrix_rules; })),
    option({"--output-tensor-type"}, "TYPE", "Type of output.weight.",
           type_of([](Settings& s) -> auto& { return s.quantize.output_type; })),
    option({"--token-embedding-type"}, "TYPE", "Type of token_embd.weight.",
           type_of([](Settings& s) -> auto& { return s.quantize.token_embedding_type; })),
    option({"--per-layer-token-embedding-type"}, "TYPE", "Type of per_layer_token_embd.weight.",
           type_of([](Settings& s) -> auto& { return s.quantize.per_layer_embedding_type; })),
    option({"--ffn-gate-inp-type"}, "TYPE", "Quantise routers, which otherwise keep their type.",
           type_of([](Settings& s) -> auto& { return s.quantize.router_type; })),
    option({"--tensor-type"}, "REGEX=TYPE",
           "Type of the tensors whose name holds a match; repeatable, the first match counts. The pattern is taken in "
           "lower case.",
           apply_tensor_type)
        .list(),
    option({"--tensor-type-file"}, "FNAME", "The same from a file, rules separated by space or line.",
           word_list([](Settings& s) -> auto& { return s.quantize.type_rule_files; }))
        .list(),
    option({"--custom-q"}, "REGEX=TYPE,...", "The same as a comma list, the pattern as it is.", apply_custom_q).list(),
    option({"--prune-layers"}, "L0,L1,...", "Leave out these layers, numbered from 0; the others move up.", apply_prune)
        .list(),
    option({"--keep-split"}, "", "As many parts as the input has, with the same tensors; OUT is their prefix.",
           toggle([](Settings& s) -> auto& { return s.quantize.keep_split; })),
    option({"--dry-run"}, "", "Show the types and sizes and write nothing.",
           toggle([](Settings& s) -> auto& { return s.quantize.dry_run; })),
    option({"--mix-rules"}, "PROJECT",
           "Whose rules choose the type of each tensor, where a file type is known to both: llama.cpp or ik_llama.cpp.",
           [](Target& target, const Argument& argument) {
             const Words<std::string> words = {{"llama.cpp", "llama.cpp"},
                                               {"ik_llama.cpp", "ik_llama.cpp"},
                                               {"ml", "llama.cpp"},
                                               {"ik", "ik_llama.cpp"},
                                               {"none", ""}};
             target.settings.quantize.rules = to_word(argument, words);
           })
        .initially("none: llama.cpp's where it knows the file type"),
    option({"--repack"}, "", "Rewrite a file with interleaved types.")
        .refused("repacking of files", "quantise the original to a type such as q4_k_r4"),
    option({"--repack-pattern"}, "REGEX,...", "Tensors that --repack rewrites.")
        .refused("repacking of files", "quantise the original to a type such as q4_k_r4"),
    option({"--partial-requant"}, "", "Write only the parts that are missing.")
        .refused("writing single parts", "leave it out: all parts appear together"),
    option({"--symmetric-q40"}, "", "Limit Q4_0 to -7..7.").refused("symmetric Q4_0", kLeaveOut),
    option({"--extra-output-tensor"}, "", "A second output tensor.").refused("extra output tensors", kLeaveOut),
    option({"--slow-iq2ks"}, "", "Slower search for IQ2_KS.").no_effect("there is one search, the thorough one"),
};

struct Role {
  std::string_view option;
  std::string_view part;  // of the tensors' names
};

constexpr Role kRoles[] = {
    {"--attn-q-type", "attn_q.weight"},     {"--attn-k-type", "attn_k.weight"},
    {"--attn-v-type", "attn_v.weight"},     {"--attn-qkv-type", "attn_qkv.weight"},
    {"--attn-output-type", "attn_output."}, {"--ffn-gate-type", "ffn_gate"},
    {"--ffn-down-type", "ffn_down"},        {"--ffn-up-type", "ffn_up"},
};

}  // namespace

void add_quantize_options(std::vector<Option>& table) {
  const auto add = [&](Option row) {
    row.group = kGroup;
    row.tools = kQuantize;
    table.push_back(std::move(row));
  };
  for (const Option& row : kRows) add(row);
  for (const Role& role : kRoles) {
    add(option({role.option}, "TYPE", "Type of the tensors of this role, instead of the rules'.",
               [part = role.part](Target& target, const Argument& argument) {
                 target.settings.quantize.role_types.emplace_back(part, to_type(argument, argument.value()));
               }));
  }
}

}  // namespace common
