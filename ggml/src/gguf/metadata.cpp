#include <array>
#include <cstring>
#include <limits>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "value_types.h"

namespace ggml::gguf {
namespace {

/// Calls `use` with element i in its stored type.
template <class Use>
auto with_element(const Array& array, std::size_t i, const Use& use) {
  const auto load = [&]<class T>(T value) {
    std::memcpy(&value, array.numbers.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  switch (array.element) {
    case ValueType::u8:
      return use(load(std::uint8_t{}));
    case ValueType::i8:
      return use(load(std::int8_t{}));
    case ValueType::u16:
      return use(load(std::uint16_t{}));
    case ValueType::i16:
      return use(load(std::int16_t{}));
    case ValueType::u32:
      return use(load(std::uint32_t{}));
    case ValueType::i32:
      return use(load(std::int32_t{}));
    case ValueType::f32:
      return use(load(float{}));
    case ValueType::boolean:
      return use(load(std::uint8_t{}) != 0);
    case ValueType::u64:
      return use(load(std::uint64_t{}));
    case ValueType::i64:
      return use(load(std::int64_t{}));
    case ValueType::f64:
      return use(load(double{}));
    case ValueType::string:
    case ValueType::array:
      break;
  }
  TANDEM_ASSERT(false, "elements of string arrays are not numbers");
  return use(0);
}

/// Conversion that saturates: casting a float outside the range of int64_t is undefined.
std::int64_t to_integer(double value) {
  constexpr double kLimit = 9223372036854775808.0;
  if (!(value > -kLimit)) return value != value ? 0 : std::numeric_limits<std::int64_t>::min();
  return value < kLimit ? static_cast<std::int64_t>(value) : std::numeric_limits<std::int64_t>::max();
}

[[noreturn]] void throw_wrong_type(std::string_view key, const Value& value, const char* wanted) {
  std::string stored(value_type_name(value.type));
  if (const Array* array = std::get_if<Array>(&value.data)) {
    stored += strf(" of %zu %s", array->size(), std::string(value_type_name(array->element)).c_str());
  }
  throw Error(ErrorCode::invalid_file,
              strf("metadata key %s is stored as %s, %s was expected", quoted(key).c_str(), stored.c_str(), wanted));
}

template <class T>
Value array_of(ValueType element, std::span<const T> values) {
  Array array{element, {}, {}};
  array.numbers.resize(values.size_bytes());
  if (!values.empty()) std::memcpy(array.numbers.data(), values.data(), values.size_bytes());
  return {ValueType::array, std::move(array)};
}

}  // namespace

std::string_view value_type_name(ValueType type) noexcept {
  constexpr std::array<std::string_view, kValueTypes> kNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                             "bool", "string", "array", "u64", "i64", "f64"};
  const auto number = static_cast<std::size_t>(type);
  return number < kNames.size() ? kNames[number] : "unknown";
}

std::size_t Array::size() const noexcept {
  return element == ValueType::string ? strings.size() : numbers.size() / value_bytes(element);
}

double Array::number(std::size_t i) const {
  TANDEM_ASSERT(i < size(), "an array element is inside its array");
  return with_element(*this, i, [](auto value) { return static_cast<double>(value); });
}

std::int64_t Array::integer(std::size_t i) const {
  TANDEM_ASSERT(i < size(), "an array element is inside its array");
  return with_element(*this, i, []<class T>(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      return to_integer(static_cast<double>(value));
    } else {
      return static_cast<std::int64_t>(value);
    }
  });
}

bool Metadata::insert(std::string key, Value value) {
  TANDEM_ASSERT(value.data.index() == variant_index(value.type), "a value holds what its type says");
  if (!index_.try_emplace(key, entries_.size()).second) return false;
  entries_.emplace_back(std::move(key), std::move(value));
  return true;
}

void Metadata::set(std::string key, Value value) {
  TANDEM_ASSERT(value.data.index() == variant_index(value.type), "a value holds what its type says");
  const auto [at, added] = index_.try_emplace(key, entries_.size());
  if (added) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[at->second].second = std::move(value);
  }
}

void Metadata::set_string(std::string key, std::string value) {
  set(std::move(key), {ValueType::string, std::move(value)});
}
void Metadata::set_u32(std::string key, std::uint32_t value) {
  set(std::move(key), {ValueType::u32, std::uint64_t{value}});
}
void Metadata::set_i32(std::string key, std::int32_t value) {
  set(std::move(key), {ValueType::i32, std::int64_t{value}});
}
void Metadata::set_u16(std::string key, std::uint16_t value) {
  set(std::move(key), {ValueType::u16, std::uint64_t{value}});
}
void Metadata::set_f32(std::string key, float value) {
  set(std::move(key), {ValueType::f32, double{value}});
}
void Metadata::set_bool(std::string key, bool value) {
  set(std::move(key), {ValueType::boolean, value});
}
void Metadata::set_strings(std::string key, std::vector<std::string> values) {
  set(std::move(key), {ValueType::array, Array{ValueType::string, {}, std::move(values)}});
}
void Metadata::set_f32s(std::string key, std::span<const float> values) {
  set(std::move(key), array_of(ValueType::f32, values));
}
void Metadata::set_i32s(std::string key, std::span<const std::int32_t> values) {
  set(std::move(key), array_of(ValueType::i32, values));
}

bool Metadata::erase(std::string_view key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return false;
  const std::size_t at = found->second;
  index_.erase(found);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  for (auto& [name, position] : index_) {
    if (position > at) --position;
  }
  return true;
}

const Value* Metadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

std::optional<std::int64_t> Metadata::get_integer(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(&value->data)) return *flag ? 1 : 0;
  if (const auto* number = std::get_if<std::int64_t>(&value->data)) return *number;
  const auto* number = std::get_if<std::uint64_t>(&value->data);
  if (number == nullptr) throw_wrong_type(key, *value, "an integer");
  if (*number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw Error(ErrorCode::invalid_file, strf("metadata key %s is %llu, at most 2^63-1 was expected",
                                              quoted(key).c_str(), static_cast<unsigned long long>(*number)));
  }
  return static_cast<std::int64_t>(*number);
}

std::optional<std::uint32_t> Metadata::get_u32(std::string_view key) const {
  const std::optional<std::int64_t> number = get_integer(key);
  if (!number) return std::nullopt;
  if (*number < 0 || *number > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::invalid_file, strf("metadata key %s is %lld, a number from 0 to 4294967295 was expected",
                                              quoted(key).c_str(), static_cast<long long>(*number)));
  }
  return static_cast<std::uint32_t>(*number);
}

std::optional<float> Metadata::get_f32(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* number = std::get_if<double>(&value->data);
  if (number == nullptr) throw_wrong_type(key, *value, "a floating-point number");
  return static_cast<float>(*number);
}

std::optional<bool> Metadata::get_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->data);
  if (flag == nullptr) throw_wrong_type(key, *value, "a bool");
  return *flag;
}

std::optional<std::string_view> Metadata::get_string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string>(&value->data);
  if (text == nullptr) throw_wrong_type(key, *value, "a string");
  return *text;
}

const Array* Metadata::get_array(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<Array>(&value->data);
  if (array == nullptr) throw_wrong_type(key, *value, "an array");
  return array;
}

}  // namespace ggml::gguf
