#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ggml/type.h"

namespace bench {

enum class Format : std::uint8_t { none, csv, json, jsonl, md, sql };
enum class FlashAttention : std::int8_t { automatic = -1, off = 0, on = 1 };
enum class LoadMode : std::uint8_t { none, mmap, mlock, mmap_mlock, direct_io };

/// What the command line asked for: every list is an axis of the grid.
struct Grid {
  std::vector<std::string> models;
  std::vector<int> n_prompt, n_gen, n_depth;
  std::vector<std::pair<int, int>> prompt_gen;     // -pg
  std::vector<std::pair<int, int>> gen_at_prompt;  // -gp
  std::vector<int> n_batch, n_ubatch, n_threads, n_gpu_layers, n_cpu_moe, poll;
  std::vector<ggml::DType> type_k, type_v;
  std::vector<FlashAttention> flash_attention;
  std::vector<LoadMode> load_mode;
  std::vector<std::string> tensor_rules;  // one entry per -ot group
  int repetitions = 5;
  bool warmup = true;
  bool verbose = false;
  bool progress = false;
  int delay_s = 0;
  Format output = Format::md;
  Format output_stderr = Format::none;
};

/// One cell of the grid.
struct Test {
  std::string model;
  int n_prompt = 0, n_gen = 0, n_depth = 0;
  bool prompt_is_untimed = false;  // -gp
  int n_batch = 0, n_ubatch = 0, n_threads = 0, n_gpu_layers = 0, n_cpu_moe = 0, poll = 50;
  ggml::DType type_k = ggml::DType::f16, type_v = ggml::DType::f16;
  FlashAttention flash_attention = FlashAttention::automatic;
  LoadMode load_mode = LoadMode::mmap;
  std::string tensor_rules;

  /// "pp512", "tg128 @ d4096", "pp512+tg128", "tg128@pp512".
  [[nodiscard]] std::string label() const;
};

/// All cells, outer axes first, as the documentation orders them.
[[nodiscard]] std::vector<Test> expand(const Grid& grid);

/// Integers of a list such as "512,1024", "1-4", "16-64+16", "1-64*2". Throws Error(invalid_argument) naming the flag
/// and the text.
[[nodiscard]] std::vector<int> parse_int_list(std::string_view flag, std::string_view text);

[[nodiscard]] std::string_view load_mode_name(LoadMode mode);

}  // namespace bench
