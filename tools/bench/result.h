#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grid.h"

namespace bench {

/// What the machine and the model say of themselves, beside a test's settings.
struct Subject {
  std::string build_commit, cpu_info, model_type;
  int build_number = 0;
  std::uint64_t model_size = 0, model_n_params = 0;
};

/// What holds for every test of a run.
struct RunFacts {
  std::string backends = "CPU";       // kinds of the GPUs
  std::string gpu_info;               // what they say of themselves
  std::string split_mode = "layer";   // none, layer
  std::string devices = "auto";       // of -dev
  std::string tensor_split = "0.00";  // of -ts
  int main_gpu = 0;
  bool no_kv_offload = false, no_op_offload = false;
  // How the graph is computed, the same in all tests.
  bool graph_reuse = true, fused_moe = true, no_fused_up_gate = false, no_fused_sum = false, merge_qkv = false;
  bool merge_up_gate = false, repack = false, no_ooae = false, cpu_moe = false, k_hadamard = false, v_hadamard = false;
  int fit_target = 0, fit_min_ctx = 0;  // 0: --fit is off

  [[nodiscard]] bool cpu_only() const { return gpu_info.empty(); }
};

struct Result {
  Test test;
  Subject subject;
  RunFacts run;
  std::string test_time;  // UTC, YYYY-MM-DDTHH:MM:SSZ
  std::vector<std::uint64_t> samples_ns;

  [[nodiscard]] std::vector<double> tokens_per_second() const;
};

enum class FieldType : std::uint8_t { text, integer, boolean, number };

/// One column of the outputs: its name in files, its type, and how a result writes it.
struct Field {
  std::string_view name;
  FieldType type;
  std::string (*value)(const Result&);
};

/// All fields in the order of the formats.
[[nodiscard]] const std::vector<Field>& fields();

[[nodiscard]] double mean(const std::vector<double>& values);
/// Sample standard deviation; 0 below two values.
[[nodiscard]] double deviation(const std::vector<double>& values);

}  // namespace bench
