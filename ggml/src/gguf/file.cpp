#include <optional>

#include "cursor.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "ggml/split_writer.h"
#include "parser.h"

namespace ggml::gguf {
namespace {

constexpr std::int64_t kMaxParts = 65535;

[[noreturn]] void fail(const std::string& path, const std::string& cause, std::string hint = {}) {
  throw Error(ErrorCode::invalid_file, path + ": " + cause, std::move(hint));
}

/// A split.* key as number; absent ones give `otherwise`. Names the file in errors.
std::int64_t split_key(const Metadata& metadata, const std::string& path, const char* key, std::int64_t otherwise) {
  try {
    return metadata.get_integer(key).value_or(otherwise);
  } catch (const Error& error) {
    fail(path, error.message());
  }
}

/// The number of parts that this file claims; 1 for a file that is not split.
std::int64_t part_count(const Metadata& metadata, const std::string& path) {
  const std::int64_t count = split_key(metadata, path, "split.count", 1);
  if (count < 0 || count > kMaxParts) {
    fail(path, strf("split.count is %lld, 0 to %lld are allowed", static_cast<long long>(count),
                    static_cast<long long>(kMaxParts)));
  }
  return count == 0 ? 1 : count;
}

/// `path` without the ending of part `number` of `count`; nothing when it ends otherwise.
std::optional<std::string> prefix_of(const std::string& path, std::int64_t number, std::int64_t count) {
  const std::string suffix = part_suffix(number, count);
  if (path.size() < suffix.size() || !path.ends_with(suffix)) return std::nullopt;
  return path.substr(0, path.size() - suffix.size());
}

void check_is_first_part(const Metadata& metadata, const std::string& path, std::int64_t count) {
  const std::int64_t number = split_key(metadata, path, "split.no", 0);
  if (number == 0) return;
  std::string hint = "give the first part of the model";
  if (number > 0 && number < kMaxParts) {
    if (const std::optional<std::string> prefix = prefix_of(path, number, count)) {
      hint += ": " + *prefix + part_suffix(0, count);
    }
  }
  fail(path,
       strf("this is part %lld of a model in %lld parts (split.no %lld), not the first",
            static_cast<long long>(number) + 1, static_cast<long long>(count), static_cast<long long>(number)),
       std::move(hint));
}

}  // namespace

std::string part_suffix(std::int64_t number, std::int64_t count) {
  return strf("-%05lld-of-%05lld.gguf", static_cast<long long>(number) + 1, static_cast<long long>(count));
}

File File::parse(std::span<const std::byte> bytes, const std::string& name) {
  return Parser(Cursor(bytes, name)).run();
}

File File::open_one(const std::string& path) {
  const Reader reader(path, ReadMode::buffered);
  return Parser(Cursor(reader)).run();
}

File File::open(const std::string& path) {
  File file = open_one(path);
  const std::int64_t count = part_count(file.metadata_, path);
  if (count == 1) return file;
  check_is_first_part(file.metadata_, path, count);
  const std::optional<std::string> prefix = prefix_of(path, 0, count);
  if (!prefix) {
    fail(path,
         strf("the model is in %lld parts, so the name of the first must end with %s", static_cast<long long>(count),
              part_suffix(0, count).c_str()),
         "give the file its original name, or list all parts in order");
  }
  for (std::int64_t number = 1; number < count; ++number) {
    const std::string part = *prefix + part_suffix(number, count);
    file.append_part(open_one(part), static_cast<std::size_t>(number), count);
  }
  file.check_tensor_count();
  return file;
}

File File::open_parts(std::span<const std::string> paths) {
  if (paths.empty()) throw Error(ErrorCode::invalid_argument, "no model file is given");
  File file = open_one(paths[0]);
  const std::int64_t count = part_count(file.metadata_, paths[0]);
  check_is_first_part(file.metadata_, paths[0], count);
  if (static_cast<std::uint64_t>(count) != paths.size()) {
    const std::string model = count == 1 ? "the model is whole in this file"
                                         : strf("the model is in %lld parts", static_cast<long long>(count));
    fail(paths[0], strf("%s, but %zu files are given", model.c_str(), paths.size()));
  }
  if (count == 1) return file;
  for (std::size_t number = 1; number < paths.size(); ++number) {
    file.append_part(open_one(paths[number]), number, count);
  }
  file.check_tensor_count();
  return file;
}

void File::append_part(File part, std::size_t number, std::int64_t n_parts) {
  const std::string& path = part.shards_.front().path;
  const std::int64_t stored_count = part_count(part.metadata_, path);
  const std::int64_t stored_number = split_key(part.metadata_, path, "split.no", -1);
  if (stored_count != n_parts) {
    fail(path,
         strf("split.count is %lld, the first part says %lld", static_cast<long long>(stored_count),
              static_cast<long long>(n_parts)),
         "the parts belong to different models");
  }
  if (stored_number != static_cast<std::int64_t>(number)) {
    fail(path, strf("split.no is %lld, %zu was expected", static_cast<long long>(stored_number), number),
         "a part was renamed or is listed at the wrong place");
  }
  for (TensorInfo& tensor : part.tensors_) {
    const auto [at, added] = tensor_index_.try_emplace(tensor.name, tensors_.size());
    if (!added) {
      fail(path, strf("tensor %s is in %s already", quoted(tensor.name).c_str(),
                      shards_[tensors_[at->second].shard].path.c_str()));
    }
    tensor.shard = number;
    tensors_.push_back(std::move(tensor));
  }
  shards_.push_back(std::move(part.shards_.front()));
}

void File::check_tensor_count() const {
  const std::string& path = shards_.front().path;
  const std::int64_t wanted = split_key(metadata_, path, "split.tensors.count", -1);
  if (!metadata_.contains("split.tensors.count"))
    fail(path, "a model in several parts must have the key split.tensors.count");
  if (wanted < 0)
    fail(path, strf("split.tensors.count is %lld, a number of tensors was expected", static_cast<long long>(wanted)));
  if (static_cast<std::uint64_t>(wanted) != tensors_.size()) {
    fail(path, strf("split.tensors.count is %lld, but the %zu parts hold %zu tensors", static_cast<long long>(wanted),
                    shards_.size(), tensors_.size()));
  }
}

const TensorInfo* File::find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace ggml::gguf
