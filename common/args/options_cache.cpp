// Types of the KV cache, and the caches of experts.
#include <algorithm>
#include <array>

#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kCache = "KV cache";
constexpr std::string_view kExperts = "Expert cache";
constexpr std::string_view kExpertCache = "the expert cache";
constexpr std::string_view kExpertAdvice = "use --cpu-moe or --n-cpu-moe";
constexpr std::string_view kHadamard = "Hadamard rotation of the KV cache";
constexpr std::string_view kHadamardAdvice = "leave it out, or use -ctk q8_0";

/// Type names that the flags of llama.cpp and ik_llama.cpp know for a KV cache.
constexpr std::array<std::string_view, 11> kKnown = {"f32",    "f16",  "bf16", "q8_0", "q4_0", "q4_1",
                                                     "iq4_nl", "q5_0", "q5_1", "q6_0", "q8_kv"};

template <class Get>
Apply cache_type(Get get) {
  return [=](Target& target, const Argument& argument) {
    const std::string name = lower_case(argument.value());
    if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
      throw ggml::Error(ggml::ErrorCode::invalid_argument,
                        "error while handling " +
                            std::string(argument.from_environment ? "environment variable" : "argument") + " \"" +
                            argument.name + "\": Unsupported cache type: " + argument.value() +
                            "; known are f32, f16 and q8_0");
    }
    const std::optional<ggml::DType> type = ggml::type_from_name(name);
    if (name != "f32" && name != "f16" && name != "q8_0")
      refuse(argument, "a KV cache of type " + name, "use f16, q8_0 or f32");
    get(target.settings) = *type;
  };
}

Option refused_type(std::vector<std::string_view> spellings, std::string_view help) {
  return option(std::move(spellings), "TYPE,N", help)
      .refused("KV types by layer", "use -ctk and -ctv for the whole model");
}

Option expert_cache(std::vector<std::string_view> spellings, std::string_view placeholder, std::string_view help) {
  return option(std::move(spellings), placeholder, help).refused(kExpertCache, kExpertAdvice);
}

const std::vector<Option> kCacheRows = {
    option({"-ctk", "--cache-type-k"}, "TYPE", "Type of the cached keys: f32, f16 or q8_0.",
           cache_type([](Settings& s) -> auto& { return s.cache.type_k; }))
        .variable("LLAMA_ARG_CACHE_TYPE_K")
        .initially("f16"),
    option({"-ctv", "--cache-type-v"}, "TYPE",
           "Type of the cached values: f32, f16 or q8_0; a quantised type needs flash attention.",
           cache_type([](Settings& s) -> auto& { return s.cache.type_v; }))
        .variable("LLAMA_ARG_CACHE_TYPE_V")
        .initially("f16"),
    option({"-kvu", "--kv-unified"}, "", "Let every slot use up to the full context instead of its share of it.",
           [](Target& target, const Argument& argument) {
             target.settings.cache.unified = !argument.negative;
             target.settings.cache.unified_given = true;
           })
        .negative({"-no-kvu", "--no-kv-unified"})
        .variable("LLAMA_ARG_KV_UNIFIED")
        .used_by(kServer)
        .initially("on when -np is left open"),
    option({"-khad", "--k-cache-hadamard"}, "", "Rotate keys before caching.")
        .variable("LLAMA_ARG_K_CACHE_HADAMARD")
        .refused(kHadamard, kHadamardAdvice),
    option({"-vhad", "--v-cache-hadamard"}, "", "Rotate values before caching.")
        .variable("LLAMA_ARG_V_CACHE_HADAMARD")
        .refused(kHadamard, kHadamardAdvice),
    refused_type({"-ctk-first", "--cache-type-k-first"}, "Another key type for the first N layers."),
    refused_type({"-ctk-last", "--cache-type-k-last"}, "Another key type for the last N layers."),
    refused_type({"-ctv-first", "--cache-type-v-first"}, "Another value type for the first N layers."),
    refused_type({"-ctv-last", "--cache-type-v-last"}, "Another value type for the last N layers."),
    option({"-ictk", "--indexer-cache-type-k"}, "TYPE", "Type of the sparse-attention indexer.")
        .no_effect("attention is dense"),
};

const std::vector<Option> kExpertRows = {
    expert_cache({"--moe-cache-mib"}, "N", "GPU memory for copies of hot experts; 0: off.")
        .variable("LLAMA_ARG_MOE_CACHE_MIB")
        .initially("0")
        .unless({"0"}),
    expert_cache({"--moe-cache"}, "soft", "Switch of the expert cache.").words({"soft"}),
    expert_cache({"--moe-cache-cpu-share"}, "F", "Share of misses computed on the CPU."),
    expert_cache({"--moe-cache-stats"}, "", "Statistics of the expert cache."),
    expert_cache({"--moe-cache-stats-interval"}, "N", "Interval of the statistics."),
    expert_cache({"--moe-prefetch-mib"}, "N", "Prefetch pool."),
    expert_cache({"-mec", "--moe-expert-cache"}, "N", "Slots per layer."),
    expert_cache({"--moe-expert-cache-inserts"}, "N", "Insertions per step."),
    expert_cache({"--moe-expert-cache-size"}, "N", "Slots per expert tensor."),
    expert_cache({"--moe-expert-cache-stats"}, "", "Statistics of the expert cache."),
    expert_cache({"--moe-expert-cache-profile"}, "FILE", "Profile of expert use."),
    expert_cache({"--moe-cache-slots"}, "N", "Slots per layer.").variable("GGML_MOE_CACHE_SLOTS"),
    expert_cache({"--moe-cache-profile"}, "CSV", "Profile of expert use.").variable("GGML_MOE_CACHE_PROFILE"),
    expert_cache({"--moe-hot-cache"}, "FILE", "Static set of hot experts.").variable("LLAMA_ARG_MOE_HOT_CACHE"),
    expert_cache({"--moe-hot-cache-max-mib"}, "N", "Memory of that set.").variable("LLAMA_ARG_MOE_HOT_CACHE_MAX_MIB"),
    expert_cache({"--moe-hot-cache-device-strategy"}, "WORD", "Distribution of that set over GPUs.")
        .variable("LLAMA_ARG_MOE_HOT_CACHE_DEVICE_STRATEGY"),
    expert_cache({"-ehs"}, "N", "Experts held per layer."),
};

}  // namespace

void add_cache_options(std::vector<Option>& table) {
  for (Option row : kCacheRows) {
    row.group = kCache;
    table.push_back(std::move(row));
  }
  for (Option row : kExpertRows) {
    row.group = kExperts;
    table.push_back(std::move(row));
  }
}

}  // namespace common
