#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/args/grid.h"
#include "common/args/settings.h"
#include "ggml/type.h"

namespace bench {

using common::grid::FlashAttention;
using common::grid::Format;
using common::grid::Grid;
using common::grid::LoadMode;

/// The grid when nothing is given.
[[nodiscard]] Grid default_grid();
/// `given` with the default for each axis that it leaves empty.
[[nodiscard]] Grid with_defaults(Grid given);

/// One cell of the grid.
struct Test {
  std::string model;
  int n_prompt = 0, n_gen = 0, n_depth = 0;
  bool prompt_is_untimed = false;  // -gp
  int n_batch = 0, n_ubatch = 0, n_gpu_layers = 0, n_cpu_moe = 0, poll = 50;
  common::ExpertBlocks n_cpu_moe_blocks = common::ExpertBlocks::automatic;
  int n_threads = 0, n_threads_batch = 0;  // of generation, of prompts
  int mla = -1;                            // -1: by modelled cost
  int attention_max_batch_mib = 256;
  std::pair<int, float> expert_reduction = {-1, 0.0F};  // KMIN, T
  std::vector<int> cpus;                                // empty: all
  int cpu_strict = 0;
  ggml::DType type_k = ggml::DType::f16, type_v = ggml::DType::f16;
  FlashAttention flash_attention = FlashAttention::automatic;
  LoadMode load_mode = LoadMode::mmap;
  std::string tensor_rules;

  /// "pp512", "tg128 @ d4096", "pp512+tg128", "tg128@pp512".
  [[nodiscard]] std::string label() const;
  /// As -ncmoe takes it: "8", "8:even".
  [[nodiscard]] std::string experts_on_cpu() const;
};

/// All cells, outer axes first, as the documentation orders them.
[[nodiscard]] std::vector<Test> expand(const Grid& grid);

}  // namespace bench
