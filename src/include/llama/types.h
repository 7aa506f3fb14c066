#pragma once

#include <cstdint>

#include "ggml/id.h"

namespace llama {

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;
using LayerId = ggml::Id<struct LayerTag>;
using SeqId = ggml::Id<struct SeqTag>;      // a sequence in the KV cache
using BlockId = ggml::Id<struct BlockTag>;  // a KV block in a group's pool
using GroupId = ggml::Id<struct GroupTag>;  // a KV group

/// How the embeddings of a sequence's tokens become one.
enum class Pooling : std::uint8_t { none, mean, cls, last, rank };

}  // namespace llama
