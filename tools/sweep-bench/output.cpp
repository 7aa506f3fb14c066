#include "output.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/args/option.h"
#include "common/setup/output_file.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace sweep {
namespace {

using FilePtr = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail(const std::string& name) {
  throw ggml::Error(ggml::ErrorCode::io, ggml::strf("cannot write %s: %s", name.c_str(), std::strerror(errno)));
}

FilePtr opened(const std::string& path) {
  FilePtr file(std::fopen(path.c_str(), "w"), std::fclose);
  if (file == nullptr) fail(path);
  return file;
}

}  // namespace

Output::Output(const common::Settings& settings) : path_(settings.bench.output_file), copy_(nullptr, std::fclose) {
  if (path_.empty()) return;
  // A device such as /dev/stdout is a fine place for a copy.
  std::error_code failed;
  if (!std::filesystem::exists(path_, failed) || std::filesystem::is_regular_file(path_, failed))
    common::check_output(path_, std::array{settings.model.path});
  copy_ = opened(path_);
}

void Output::write(std::FILE* stream, const std::string& name, const std::string& text) {
  std::fprintf(stream, "%s\n", text.c_str());
  if (std::fflush(stream) != 0 || std::ferror(stream) != 0) fail(name);
}

void Output::line(const std::string& text) {
  note(text);
  if (copy_ != nullptr) write(copy_.get(), path_, text);
}

void Output::note(const std::string& text) {
  write(stderr, "standard error", text);
}

ChartFile::ChartFile(const common::Settings& settings) : path_(settings.bench.chart_file), file_(nullptr, std::fclose) {
  common::check_output(path_, std::array{settings.model.path});
  part_ = path_ + ".part";
  file_ = opened(part_);
}

ChartFile::~ChartFile() {
  if (file_ == nullptr) return;
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

bool ChartFile::is_html() const {
  return common::lower_case(path_).ends_with(".html");
}

void ChartFile::finish(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0)
    fail(part_);
  std::error_code failed;
  std::filesystem::rename(part_, path_, failed);
  if (failed) throw ggml::Error(ggml::ErrorCode::io, "cannot write " + path_ + ": " + failed.message());
  file_.reset();
}

}  // namespace sweep
