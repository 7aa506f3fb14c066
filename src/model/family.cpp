#include "model/family.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace llama {

#define FAMILY(id) extern const Family k_##id;
#include "model/families.def"
#undef FAMILY

namespace {

constexpr std::array kFamilies{
#define FAMILY(id) &k_##id,
#include "model/families.def"
#undef FAMILY
};

// Names that other programs write, without a family here.
constexpr std::string_view kUnsupported[] = {
    "arcee",        "bailingmoe2", "bailingmoe3", "bitnet-25",       "bitnet-b1.58",   "cohere2",     "cohere2moe",
    "command-r",    "deci",        "deepseek",    "deepseek32",      "deepseek4",      "dots1",       "ernie4_5",
    "ernie4_5-moe", "exaone4",     "falcon",      "gemma-embedding", "gemma4",         "glm-dsa",     "granite",
    "granitemoe",   "grok",        "hunyuan-moe", "jina-bert-v2",    "jina-bert-v3",   "kimi-linear", "laguna",
    "llama-embed",  "llama4",      "mamba",       "mellum",          "mimo2",          "minimax-m3",  "mistral3",
    "mistral4",     "mpt",         "nemotron",    "nomic-bert",      "nomic-bert-moe", "olmo2",       "olmoe",
    "openpangu",    "phi3",        "phimoe",      "qwen3vl",         "qwen3vlmoe",     "seed_oss",    "smollm3",
    "stablelm",     "starcoder2",  "step35"};

}  // namespace

bool is_known_unsupported(std::string_view arch) noexcept {
  return std::find(std::begin(kUnsupported), std::end(kUnsupported), arch) != std::end(kUnsupported);
}

const Family* find_family(std::string_view arch) noexcept {
  for (const Family* family : kFamilies)
    if (family->arch == arch) return family;
  return nullptr;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kFamilies));
  for (const Family* family : kFamilies) names.push_back(family->arch);
  return names;
}

}  // namespace llama
