#pragma once

#include "op_def.h"

/// What the attention ops check alike.
namespace ggml::attention_check {

/// The layout makes sense and head counts divide.
void params(const OpInputs& in, const AttentionParams& p);
/// Keys and values at sources i and i + 1 have the layout's shapes.
void keys_and_values(const OpInputs& in, std::size_t i, const KvLayout& kv);
/// pool, spans and block table from source i on.
void cache_inputs(const OpInputs& in, std::size_t i);
/// The result for queries at source 0; checks them and the sinks.
[[nodiscard]] std::vector<TensorDesc> result(const OpInputs& in, const AttentionParams& p);

}  // namespace ggml::attention_check
