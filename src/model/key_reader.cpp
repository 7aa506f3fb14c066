#include "model/key_reader.h"

#include <algorithm>
#include <cmath>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

std::string out_of_range(const std::string& key, std::int64_t value, IntRange range) {
  return strf("%s: %lld to %lld expected, file has %lld", key.c_str(), static_cast<long long>(range.min),
              static_cast<long long>(range.max), static_cast<long long>(value));
}

bool inside(std::int64_t value, IntRange range) {
  return value >= range.min && value <= range.max;
}

}  // namespace

KeyReader::KeyReader(const ggml::gguf::Metadata& metadata, std::string arch, std::string file)
    : metadata_(metadata), arch_(std::move(arch)), file_(std::move(file)) {}

std::string KeyReader::full_name(std::string_view suffix) const {
  return arch_ + "." + std::string(suffix);
}

bool KeyReader::contains(std::string_view suffix) const {
  return metadata_.contains(full_name(suffix));
}

bool KeyReader::is_array(std::string_view suffix) const {
  const ggml::gguf::Value* value = metadata_.find(full_name(suffix));
  return value != nullptr && value->type == ggml::gguf::ValueType::array;
}

int KeyReader::integer(std::string_view suffix, IntRange range, std::optional<int> fallback) {
  return read_integer(full_name(suffix), range, fallback);
}

int KeyReader::integer_of(std::string_view key, IntRange range) {
  return read_integer(std::string(key), range, std::nullopt);
}

int KeyReader::read_integer(const std::string& key, IntRange range, std::optional<int> fallback) {
  const int stand_in = fallback ? *fallback : static_cast<int>(range.min);
  try {
    const std::optional<std::int64_t> value = metadata_.get_integer(key);
    if (!value) {
      if (!fallback) problem(key + ": required, but the file does not have it");
      return stand_in;
    }
    if (inside(*value, range)) return static_cast<int>(*value);
    problem(out_of_range(key, *value, range));
  } catch (const Error& error) {
    problem(error.message());
  }
  return stand_in;
}

bool KeyReader::flag(std::string_view suffix, bool fallback) {
  return integer(suffix, {0, 1}, fallback ? 1 : 0) != 0;
}

std::vector<int> KeyReader::list(std::string_view suffix, std::size_t max_count, IntRange range) {
  if (!contains(suffix)) return {};
  const std::string key = full_name(suffix);
  std::vector<int> values;
  try {
    const ggml::gguf::Array* array = is_array(suffix) ? metadata_.get_array(key) : nullptr;
    if (array == nullptr || array->element == ggml::gguf::ValueType::string || array->size() > max_count) {
      problem(strf("%s: an array of up to %zu numbers expected", key.c_str(), max_count));
      return {};
    }
    for (std::size_t i = 0; i < array->size(); ++i) {
      const std::int64_t value = array->integer(i);
      if (!inside(value, range)) problem(out_of_range(key + "[" + std::to_string(i) + "]", value, range));
      values.push_back(static_cast<int>(std::clamp(value, range.min, range.max)));
    }
  } catch (const Error& error) {
    problem(error.message());
  }
  return values;
}

float KeyReader::real(std::string_view suffix, RealRange range, std::optional<float> fallback) {
  const std::string key = full_name(suffix);
  const float stand_in = fallback ? *fallback : static_cast<float>(range.min);
  try {
    const std::optional<float> value = metadata_.get_f32(key);
    if (!value) {
      if (!fallback) problem(key + ": required, but the file does not have it");
      return stand_in;
    }
    const double real = static_cast<double>(*value);
    if (std::isfinite(real) && real >= range.min && real <= range.max) return *value;
    problem(strf("%s: %g to %g expected, file has %g", key.c_str(), range.min, range.max, real));
  } catch (const Error& error) {
    problem(error.message());
  }
  return stand_in;
}

std::string KeyReader::text(std::string_view suffix, std::string_view fallback) {
  const std::string key = full_name(suffix);
  try {
    const std::optional<std::string_view> value = metadata_.get_string(key);
    if (value) return std::string(*value);
  } catch (const Error& error) {
    problem(error.message());
  }
  return std::string(fallback);
}

std::vector<int> KeyReader::per_layer(std::string_view suffix, int n, IntRange range,
                                      const std::vector<int>& fallback) {
  const std::string key = full_name(suffix);
  const auto count = static_cast<std::size_t>(n);
  if (!is_array(suffix)) {
    if (!contains(suffix)) return fallback;
    return std::vector<int>(count, integer(suffix, range, std::nullopt));
  }
  std::vector<int> values(count, static_cast<int>(range.min));
  try {
    const ggml::gguf::Array& array = *metadata_.get_array(key);
    if (array.element == ggml::gguf::ValueType::string) {
      problem(key + ": an array of numbers expected, file has an array of strings");
      return values;
    }
    if (array.size() != count) {
      problem(strf("%s: one entry for each of %d blocks expected, file has %zu", key.c_str(), n, array.size()));
      return values;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t value = array.integer(i);
      if (!inside(value, range)) {
        problem(out_of_range(key + "[" + std::to_string(i) + "]", value, range));
        break;
      }
      values[i] = static_cast<int>(value);
    }
  } catch (const Error& error) {
    problem(error.message());
  }
  return values;
}

void KeyReader::finish() const {
  if (problems_.empty()) return;
  throw Error(ErrorCode::invalid_file, list_problems(file_, problems_),
              "the file is damaged or was made for another program; download or convert it again");
}

std::string list_problems(const std::string& file, const std::vector<std::string>& problems) {
  constexpr std::size_t kMaxListed = 20;
  if (problems.size() == 1) return file + ": " + problems.front();
  std::string text = strf("%s: %zu problems:", file.c_str(), problems.size());
  for (std::size_t i = 0; i < problems.size() && i < kMaxListed; ++i) text += "\n  " + problems[i];
  if (problems.size() > kMaxListed) text += strf("\n  and %zu more", problems.size() - kMaxListed);
  return text;
}

}  // namespace llama
