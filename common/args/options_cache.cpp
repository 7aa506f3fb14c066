// Types of the KV cache, and the caches of experts.
#include <algorithm>
#include <vector>

#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kCache = "KV cache";
constexpr std::string_view kExperts = "Expert cache";
constexpr std::string_view kExpertCache = "the expert cache";
constexpr std::string_view kExpertAdvice = "use --cpu-moe or --n-cpu-moe";

/// Names of the types that may hold KV, from the most bits to the fewest.
std::string known_types() {
  std::vector<const ggml::TypeInfo*> types;
  for (int i = 0; i < ggml::kTypeCount; ++i)
    if (const ggml::TypeInfo& info = ggml::type_info(static_cast<ggml::DType>(i)); info.kv_capable)
      types.push_back(&info);
  const auto bits = [](const ggml::TypeInfo* type) { return 8.0 * type->block_bytes / type->block_weights; };
  std::stable_sort(types.begin(), types.end(), [&](const auto* a, const auto* b) { return bits(a) > bits(b); });
  std::string names;
  for (std::size_t i = 0; i < types.size(); ++i)
    names += (i == 0 ? "" : i + 1 == types.size() ? " and " : ", ") + std::string(types[i]->id);
  return names;
}

template <class Get>
Apply cache_type(Get get) {
  return [=](Target& target, const Argument& argument) {
    const std::optional<ggml::DType> type = ggml::type_from_name(argument.value());
    if (!type || !ggml::type_info(*type).kv_capable)
      throw ggml::Error(ggml::ErrorCode::invalid_argument,
                        "error while handling " +
                            std::string(argument.from_environment ? "environment variable" : "argument") + " \"" +
                            argument.name + "\": Unsupported cache type: " + argument.value() + "; known are " +
                            known_types());
    get(target.settings) = *type;
  };
}

Option refused_type(std::vector<std::string_view> spellings, std::string_view help) {
  return option(std::move(spellings), "TYPE,N", help)
      .refused("KV types by layer", "use -ctk and -ctv for the whole model");
}

Option expert_cache(std::vector<std::string_view> spellings, std::string_view placeholder, std::string_view help) {
  return option(std::move(spellings), placeholder, help)
      .refused(kExpertCache, kExpertAdvice)
      .used_by(kModelRunners | kBench);
}

const std::vector<Option> kCacheRows = {
    option(
        {"-ctk", "--cache-type-k"}, "TYPE",
        "Type of the cached keys: f32, f16, bf16, q8_0, q8_kv, q6_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl; where the size "
        "of heads is no multiple of 32 one of the first three.",
        cache_type([](Settings& s) -> auto& { return s.cache.type_k; }))
        .variable("LLAMA_ARG_CACHE_TYPE_K")
        .initially("f16"),
    option({"-ctv", "--cache-type-v"}, "TYPE",
           "Type of the cached values, as -ctk; a quantised type needs flash attention.",
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
    option({"-khad", "--k-cache-hadamard"}, "",
           "Hadamard-transform the heads of keys and queries, so that few-bit types of -ctk keep keys better; heads of "
           "64, 128 or 256 elements.",
           toggle([](Settings& s) -> auto& { return s.cache.k_hadamard; }))
        .variable("LLAMA_ARG_K_CACHE_HADAMARD")
        .used_by(kModelRunners | kBench)
        .initially("off"),
    option({"-vhad", "--v-cache-hadamard"}, "", "The same for values; what attention gives is transformed back.",
           toggle([](Settings& s) -> auto& { return s.cache.v_hadamard; }))
        .variable("LLAMA_ARG_V_CACHE_HADAMARD")
        .used_by(kModelRunners | kBench)
        .initially("off"),
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
