#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "common/args/settings.h"
#include "llama/context.h"
#include "sweep.h"

namespace sweep {

/// Limits of this machine, for --roofline.
struct Roofline {
  double bytes_per_s = 0;
  double int8_ops_per_s = 0;
};

/// Writes the rows as scripts expect them: to stderr, line by line, and without anything else to --output-file.
class Table {
 public:
  /// Throws Error(io) when the output file cannot be opened.
  Table(const common::Settings& settings, const llama::Context& context, int n_threads, int n_threads_batch);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void header();
  void row(const Row& row, const std::optional<Roofline>& limit);

 private:
  void line(const std::string& text);

  const common::Settings& settings_;
  const llama::ContextParams context_;
  const int n_threads_, n_threads_batch_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> copy_;
};

}  // namespace sweep
