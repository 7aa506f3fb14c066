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

struct Result {
  Test test;
  Subject subject;
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
