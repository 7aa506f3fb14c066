#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "common/args/settings.h"

namespace sweep {

/// Where results go: to stderr, line by line, and without anything else to --output-file.
class Output {
 public:
  /// Throws Error: io when the file cannot be opened, invalid_argument when it is the model.
  explicit Output(const common::Settings& settings);

  void line(const std::string& text);
  /// What does not belong to the copy.
  void note(const std::string& text);

 private:
  void write(std::FILE* stream, const std::string& name, const std::string& text);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> copy_;
};

/// --chart: a file that is there, complete, only when finish() returns; opened at the start, since a measurement of an
/// hour that cannot be written helps nobody.
class ChartFile {
 public:
  /// Throws as Output does.
  explicit ChartFile(const common::Settings& settings);
  ~ChartFile();
  ChartFile(const ChartFile&) = delete;
  ChartFile& operator=(const ChartFile&) = delete;

  [[nodiscard]] bool is_html() const;
  void finish(const std::string& text);

 private:
  std::string path_, part_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace sweep
