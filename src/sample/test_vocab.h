#pragma once

#include <string>
#include <vector>

#include "ggml/gguf.h"
#include "llama/vocab.h"

namespace llama::testing {

/// An SPM vocabulary without a space prefix: <unk>, <s>, </s>, then `words` from id 3 on.
inline Vocab word_vocab(const std::vector<std::string>& words) {
  ggml::gguf::Metadata metadata;
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types{2, 3, 3};
  tokens.insert(tokens.end(), words.begin(), words.end());
  types.resize(tokens.size(), 1);
  metadata.set_string("tokenizer.ggml.model", "llama");
  metadata.set_strings("tokenizer.ggml.tokens", tokens);
  metadata.set_f32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
  metadata.set_i32s("tokenizer.ggml.token_type", types);
  metadata.set_u32("tokenizer.ggml.bos_token_id", 1);
  metadata.set_u32("tokenizer.ggml.eos_token_id", 2);
  metadata.set_bool("tokenizer.ggml.add_space_prefix", false);
  return Vocab::load(metadata, "test");
}

}  // namespace llama::testing
