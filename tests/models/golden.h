#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "llama/context.h"
#include "llama/model.h"

/// The golden models of the tests: tiny files with the logits that a correct implementation gives.
namespace llama::golden {

struct Tolerance {
  double max = 0;
  double rms = 0;
};

/// What the JSON of a golden model says, as far as the tests use it. Rows are those of the golden arrays.
struct Golden {
  std::string name;
  std::string path;                       // of the first file
  std::vector<std::string> tensor_types;  // "F32", "MXFP4"
  int n_vocab = 0;
  std::vector<Token> prompt;
  std::vector<int> chunk_sizes;
  std::vector<Token> greedy;
  std::vector<double> greedy_gap;
  std::vector<Token> pair_seq0, pair_seq1, pair_greedy0, pair_greedy1;
  std::map<int, std::vector<std::vector<int>>> experts;  // by layer: [row][rank], empty without experts
  std::vector<double> expert_margin;                     // per row
  bool q8_cache_changes_experts = false;
  bool has_q8_cache = true;  // whether a reference could run it with such a cache, and so gave a tolerance
  Tolerance f32_kv, f16_kv, q8_kv, rounded;
  std::vector<float> exact;         // [101, n_vocab]
  std::vector<float> rounded_rows;  // [48 to 64, n_vocab], empty for all-F32 models
  [[nodiscard]] bool all_f32() const { return rounded_rows.empty(); }
};

/// The golden called `name`, from the big folder or else from tests/data; null when neither has it.
[[nodiscard]] std::unique_ptr<Golden> load(const std::string& name);

/// Logits by golden row; rows that a case does not give stay empty.
using Rows = std::vector<std::vector<float>>;
inline constexpr std::size_t kRows = 101;

/// The four cases, each in a context of its own.
void run_single(Context& context, const Golden& golden, Rows& rows);
void run_batch(Context& context, const Golden& golden, Rows& rows);
void run_chunks(Context& context, const Golden& golden, Rows& rows);
void run_pair(Context& context, const Golden& golden, Rows& rows);

struct Difference {
  double max = 0;
  double rms = 0;
  int rows = 0;            // compared
  int rows_over = 0;       // with a difference above the row limit
  double rms_of_near = 0;  // of the other rows
};
/// Over the rows that were computed and that `expected` has.
[[nodiscard]] Difference compare(const Rows& rows, const std::vector<float>& expected, int n_vocab,
                                 double row_limit = 1e-4);

/// The golden's name as that of a test, for INSTANTIATE_TEST_SUITE_P: - becomes _.
inline constexpr auto test_name = [](const auto& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};

[[nodiscard]] int argmax(std::span<const float> row);

/// A device whose executor evaluates every op as its decomposition in double precision.
[[nodiscard]] std::unique_ptr<ggml::Device> make_reference_device();

}  // namespace llama::golden
