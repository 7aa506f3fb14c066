#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ggml/type.h"

namespace common {
enum class ExpertBlocks : std::uint8_t;
}

/// What llama-bench is told: lists of values, of which it measures every combination.
namespace common::grid {

enum class Format : std::uint8_t { none, csv, json, jsonl, md, sql };
enum class FlashAttention : std::int8_t { automatic = -1, off = 0, on = 1 };
enum class LoadMode : std::uint8_t { none, mmap, mlock, mmap_mlock, direct_io };

/// A value of -ncmoe: how many blocks, and which.
struct ExpertsOnCpu {
  int n = 0;
  ExpertBlocks blocks{};  // automatic

  bool operator==(const ExpertsOnCpu&) const = default;
};

/// Every list is an axis; one that the user left alone is empty.
struct Grid {
  std::vector<std::string> models;
  std::vector<int> n_prompt, n_gen, n_depth;
  std::vector<std::pair<int, int>> prompt_gen;     // -pg
  std::vector<std::pair<int, int>> gen_at_prompt;  // -gp
  std::vector<int> n_batch, n_ubatch, n_threads, n_gpu_layers, poll;
  std::vector<ExpertsOnCpu> n_cpu_moe;
  std::vector<std::pair<int, int>> threads_gen_batch;   // -tgb: of generation, of prompts; more teams beside n_threads
  std::vector<int> mla;                                 // -1: by modelled cost
  std::vector<int> attention_max_batch_mib;             // -amb
  std::vector<std::pair<int, float>> expert_reduction;  // -ser: KMIN, T; -1: off
  std::vector<std::vector<int>> cpus;                   // -C: the CPUs of each mask
  std::vector<int> cpu_strict;
  std::vector<ggml::DType> type_k, type_v;
  std::vector<FlashAttention> flash_attention;
  std::vector<LoadMode> load_mode;
  std::vector<std::string> tensor_rules;  // one entry per -ot group
  int repetitions = 5;
  bool progress = false;
  int delay_s = 0;
  Format output = Format::md;
  Format output_stderr = Format::none;
};

/// Integers of a list such as "512,1024", "1-4", "16-64+16", "1-64*2". When the text is none, the list is empty and
/// `why` says what is wrong with which item.
[[nodiscard]] std::vector<int> parse_int_list(std::string_view text, std::string& why);

[[nodiscard]] std::string_view load_mode_name(LoadMode mode);

}  // namespace common::grid
