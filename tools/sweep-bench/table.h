#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/args/settings.h"
#include "common/setup/setup.h"
#include "llama/context.h"
#include "output.h"
#include "sweep.h"

namespace sweep {

/// Limits of this machine, for --roofline.
struct Roofline {
  double bytes_per_s = 0;
  double int8_ops_per_s = 0;
};

/// Further keys of a JSONL row: `, "key": value` each.
using MoreKeys = std::function<std::string(const Row&)>;

/// Writes the rows of one sweep as scripts expect them.
class Table {
 public:
  Table(Output& output, const common::Settings& settings, const llama::Context& context, MoreKeys more);

  void header();
  void row(const Row& row, const std::optional<Roofline>& limit);

 private:
  void jsonl_row(const Row& row, const std::optional<Roofline>& limit);

  Output& output_;
  const common::Settings& settings_;
  const llama::ContextParams context_;
  const common::ThreadCounts threads_;
  const MoreKeys more_;
};

}  // namespace sweep
