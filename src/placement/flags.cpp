#include <algorithm>

#include "ggml/log.h"
#include "llama/placement.h"
#include "placement/expert_blocks.h"

namespace llama {

using ggml::strf;

namespace {

/// Shares so that reading them gives the same numbers again.
std::string shares_text(const std::vector<float>& shares) {
  std::string text;
  for (const float share : shares) text += strf("%s%.9g", text.empty() ? "" : ",", static_cast<double>(share));
  return text;
}

std::string tensor_rules_text(const std::vector<BufferRule>& rules) {
  std::string text;
  for (const BufferRule& rule : rules) text += (text.empty() ? "" : ",") + rule.pattern.text() + "=" + rule.buffer;
  return text;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  // What double quotes do not protect, an interactive shell's ! included. A backslash stays in them unless it stands
  // before one of these.
  if (word.find_first_of("$`\"!") == std::string::npos && word.find("\\\\") == std::string::npos &&
      !word.ends_with('\\'))
    return '"' + word + '"';
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'')
      text += R"('\'')";
    else
      text += c;
  }
  return text + "'";
}

std::string flags_text(const PlacementRules& rules, int n_ctx, std::size_t n_devices) {
  constexpr int kAnyNumberOfLayers = 999;
  const int n_gpu_layers = rules.n_gpu_layers.value_or(kAllLayers);
  std::string text = strf("-c %d -ngl %d", n_ctx, n_gpu_layers == kAllLayers ? kAnyNumberOfLayers : n_gpu_layers);
  const bool has_shares =
      std::any_of(rules.tensor_split.begin(), rules.tensor_split.end(), [](float share) { return share > 0.0F; });
  if (n_devices > 2 && has_shares) text += " -ts " + shares_text(rules.tensor_split);
  if (!rules.tensor_rules.empty()) text += " -ot " + shell_quoted(tensor_rules_text(rules.tensor_rules));
  if (rules.split_mode == SplitMode::none) text += " -sm none";
  if (rules.main_gpu) text += strf(" -mg %d", *rules.main_gpu);
  if (rules.cpu_moe) text += " --cpu-moe";
  if (rules.n_cpu_moe > 0) text += " " + n_cpu_moe_text(rules.n_cpu_moe, rules.cpu_moe_blocks);
  if (rules.n_cpu_ffn > 0) text += strf(" --n-cpu-ffn %d", rules.n_cpu_ffn);
  if (!rules.kv_offload) text += " -nkvo";
  return text;
}

}  // namespace llama
