#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "ggml/gguf.h"

/// Small made-up vocabularies for tests, the fuzzer and the benchmark.
namespace llama::testing {

/// A SentencePiece vocabulary: <unk>, <s>, </s>, the 256 byte tokens, then `pieces` with falling scores.
[[nodiscard]] ggml::gguf::Metadata spm_metadata(const std::vector<std::string>& pieces);

/// A byte-level BPE vocabulary: the 256 bytes, then what `merges` make, then <|end|> (control) and <tool>
/// (user-defined).
[[nodiscard]] ggml::gguf::Metadata bpe_metadata(const std::vector<std::string>& merges, const std::string& pre);

/// Vocabularies of WordPiece, unigram and RWKV with a few words of English.
[[nodiscard]] ggml::gguf::Metadata wpm_metadata();
[[nodiscard]] ggml::gguf::Metadata ugm_metadata();
[[nodiscard]] ggml::gguf::Metadata rwkv_metadata();
/// A PLaMo-2 vocabulary: four special tokens, the 256 byte tokens, then `pieces` with their scores.
[[nodiscard]] ggml::gguf::Metadata plamo_metadata(const std::vector<std::pair<std::string, float>>& pieces);

/// Merges that build common English words up from bytes.
[[nodiscard]] std::vector<std::string> some_merges();

}  // namespace llama::testing
