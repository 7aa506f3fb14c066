#include "cursor.h"

#include <algorithm>
#include <cstring>

#include "ggml/log.h"
#include "ggml/quoted.h"
#include "value_types.h"

namespace ggml::gguf {
namespace {

/// No real header comes near this (the largest vocabularies need some 20 MB); a sparse file of terabytes may claim
/// more.
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{1} << 30;
constexpr std::size_t kWindowBytes = std::size_t{1} << 20;

}  // namespace

Cursor::Cursor(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), size_(bytes.size()), window_(bytes) {}

Cursor::Cursor(const Reader& file) : name_(file.path()), size_(file.file_bytes()), file_(&file) {}

void Cursor::fail(std::uint64_t at, const std::string& cause, ErrorCode code) const {
  throw Error(code, strf("%s: byte %llu: %s%s", name_.c_str(), ull(at), subject_text().c_str(), cause.c_str()));
}

std::string Cursor::subject_text() const {
  if (subject_.kind == nullptr) return {};
  if (subject_.number > 0) return strf("%s %llu of %llu: ", subject_.kind, ull(subject_.number), ull(subject_.total));
  return strf("%s %s: ", subject_.kind, quoted(subject_.name).c_str());
}

void Cursor::require(std::uint64_t bytes, const char* what) const {
  if (bytes > remaining()) {
    fail(position_, strf("%s needs %llu bytes, but the file ends after %llu more", what, ull(bytes), ull(remaining())));
  }
  if (position_ > kMaxHeaderBytes || bytes > kMaxHeaderBytes - position_) {
    fail(position_, strf("%s of %llu bytes makes the header larger than the limit of %llu bytes", what, ull(bytes),
                         ull(kMaxHeaderBytes)));
  }
}

void Cursor::read(std::span<std::byte> dst, const char* what) {
  require(dst.size(), what);
  while (!dst.empty()) {
    if (window_.empty()) refill();
    const std::size_t n = std::min(dst.size(), window_.size());
    std::memcpy(dst.data(), window_.data(), n);
    dst = dst.subspan(n);
    window_ = window_.subspan(n);
    position_ += n;
  }
}

std::string Cursor::string(const char* what) {
  const auto length = number<std::uint64_t>(what);
  require(length, what);
  std::string text(static_cast<std::size_t>(length), '\0');
  read(std::as_writable_bytes(std::span(text)), what);
  return text;
}

void Cursor::refill() {
  storage_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kWindowBytes, remaining())));
  file_->read(position_, storage_);
  window_ = storage_;
}

}  // namespace ggml::gguf
