#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ggml/gguf.h"

namespace llama::testing {

/// Writes a llama-like model with `n_layer` layers of random F32 weights, two experts if `experts`.
inline void write_model(const std::string& path, int n_layer, bool experts) {
  ggml::gguf::Writer writer(path);
  writer.metadata.set_string("general.architecture", "llama");
  writer.metadata.set_u32("llama.block_count", static_cast<std::uint32_t>(n_layer));
  writer.metadata.set_u32("llama.attention.head_count", 4);
  writer.metadata.set_u32("llama.attention.head_count_kv", 2);
  writer.metadata.set_f32("llama.rope.freq_base", 10000);
  struct Row {
    std::string name;
    ggml::Shape shape;
  };
  std::vector<Row> rows = {{"token_embd.weight", ggml::Shape(256, 40)},
                           {"output_norm.weight", ggml::Shape(256)},
                           {"output.weight", ggml::Shape(256, 40)}};
  for (int i = 0; i < n_layer; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    rows.push_back({layer + "attn_norm.weight", ggml::Shape(256)});
    rows.push_back({layer + "attn_v.weight", ggml::Shape(256, 128)});
    if (experts) {
      rows.push_back({layer + "ffn_gate_inp.weight", ggml::Shape(256, 2)});
      rows.push_back({layer + "ffn_down_exps.weight", ggml::Shape(512, 256, 2)});
    } else {
      rows.push_back({layer + "ffn_down.weight", ggml::Shape(512, 256)});
    }
  }
  for (const Row& row : rows) writer.add_tensor(row.name, ggml::DType::f32, row.shape);
  writer.begin_data();
  std::uint32_t state = 1;
  for (const Row& row : rows) {
    std::vector<float> values(static_cast<std::size_t>(row.shape.elements()));
    for (float& value : values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) / static_cast<float>(1U << 24) - 0.5F;
    }
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
}

}  // namespace llama::testing
