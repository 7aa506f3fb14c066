#include "quantize/plan_metadata.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "ggml/error.h"
#include "ggml/log.h"
#include "model/kv_override.h"

namespace llama {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::gguf::Metadata;
using ggml::gguf::Value;
using ggml::gguf::ValueType;

constexpr std::uint32_t kQuantizationVersion = 2;

/// Behind all others, as a key that was not there: so both peers order the keys they write.
void append_u32(Metadata& metadata, const std::string& key, std::uint32_t value) {
  metadata.erase(key);
  metadata.set_u32(key, value);
}

struct IntegerRange {
  ValueType type;
  std::int64_t least;
  std::uint64_t most;
};
template <class T>
constexpr IntegerRange range_of(ValueType type) {
  return {type, static_cast<std::int64_t>(std::numeric_limits<T>::min()),
          static_cast<std::uint64_t>(std::numeric_limits<T>::max())};
}
constexpr IntegerRange kIntegers[] = {range_of<std::uint8_t>(ValueType::u8),   range_of<std::int8_t>(ValueType::i8),
                                      range_of<std::uint16_t>(ValueType::u16), range_of<std::int16_t>(ValueType::i16),
                                      range_of<std::uint32_t>(ValueType::u32), range_of<std::int32_t>(ValueType::i32),
                                      range_of<std::uint64_t>(ValueType::u64), range_of<std::int64_t>(ValueType::i64)};

bool fits(const IntegerRange& range, std::int64_t number) {
  return number >= range.least && (number < 0 || static_cast<std::uint64_t>(number) <= range.most);
}

/// `number` as the type `wanted`, or, for a new key, as the usual one that holds it.
Value integer_value(const std::string& key, std::int64_t number, std::optional<ValueType> wanted) {
  for (const IntegerRange& range : kIntegers) {
    const bool candidate = wanted ? range.type == *wanted : range.type >= ValueType::u32;
    if (!candidate) continue;
    if (fits(range, number)) {
      if (range.least < 0) return {range.type, number};
      return {range.type, static_cast<std::uint64_t>(number)};
    }
    if (wanted) {
      throw Error(ErrorCode::invalid_argument,
                  ggml::strf("metadata override %s: %lld does not fit the key's type %s", key.c_str(),
                             static_cast<long long>(number), std::string(value_type_name(*wanted)).c_str()));
    }
  }
  throw Error(ErrorCode::invalid_argument, "metadata override " + key + ": its type in the file is no integer");
}

/// --override-kv reads values into 64 bits; a file that peers read needs the types they expect.
void set_as_stored(Metadata& metadata, const std::string& key, const Value& value, const Value* old) {
  std::optional<ValueType> wanted;
  if (old != nullptr) wanted = old->type;
  const bool number_for_real = wanted == ValueType::f32 || wanted == ValueType::f64;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data); integer != nullptr && !number_for_real) {
    metadata.set(key, integer_value(key, *integer, wanted));
  } else if (integer != nullptr) {
    metadata.set(key, {*wanted, static_cast<double>(*integer)});
  } else if (const auto* real = std::get_if<double>(&value.data)) {
    if (wanted && !number_for_real)
      throw Error(ErrorCode::invalid_argument, "metadata override " + key + ": its type in the file is no real number");
    metadata.set(key, {wanted.value_or(ValueType::f32), *real});
  } else {
    if (wanted && *wanted != value.type)
      throw Error(ErrorCode::invalid_argument,
                  "metadata override " + key + ": its type in the file is " + std::string(value_type_name(*wanted)));
    metadata.set(key, value);
  }
}

void apply_typed_overrides(std::span<const KvOverride> overrides, Metadata& metadata) {
  Metadata parsed;
  apply_overrides(overrides, parsed);
  for (const auto& [key, value] : parsed.entries()) {
    const Value* old = metadata.find(key);
    const std::optional<Value> before = old == nullptr ? std::nullopt : std::optional<Value>(*old);
    set_as_stored(metadata, key, value, before ? &*before : nullptr);
  }
}

/// A key with a value per layer would no longer match the layers.
void check_no_layer_lists(const Metadata& metadata) {
  const std::string prefix = std::string(*metadata.get_string("general.architecture")) + ".";
  const std::int64_t n_layer = metadata.get_integer(prefix + "block_count").value_or(0);
  for (const auto& [key, value] : metadata.entries()) {
    const auto* list = std::get_if<ggml::gguf::Array>(&value.data);
    if (list == nullptr || !key.starts_with(prefix) || static_cast<std::int64_t>(list->size()) != n_layer) continue;
    throw Error(ErrorCode::unsupported, "--prune-layers: " + key + " has a value for each layer",
                "layers of such models cannot be left out");
  }
}

}  // namespace

Metadata output_metadata(const ggml::gguf::File& file, const QuantizeParams& params) {
  Metadata out = file.metadata();
  append_u32(out, "general.quantization_version", kQuantizationVersion);
  if (params.file_type != nullptr) append_u32(out, "general.file_type", params.file_type->number);
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) out.erase(key);
  apply_typed_overrides(params.kv_overrides, out);
  if (params.importance != nullptr && !params.importance_file.empty()) {
    const ImportanceMatrix& matrix = *params.importance;
    out.set_string("quantize.imatrix.file", params.importance_file);
    if (!matrix.datasets.empty()) out.set_string("quantize.imatrix.dataset", matrix.datasets.front());
    out.set_i32("quantize.imatrix.entries_count", static_cast<std::int32_t>(matrix.entries.size()));
    if (matrix.chunks > 0) out.set_i32("quantize.imatrix.chunks_count", static_cast<std::int32_t>(matrix.chunks));
  }
  if (!params.pruned_layers.empty()) {
    check_no_layer_lists(out);
    const std::string key = std::string(*out.get_string("general.architecture")) + ".block_count";
    const auto left = static_cast<std::int64_t>(out.get_integer(key).value_or(0)) -
                      static_cast<std::int64_t>(params.pruned_layers.size());
    out.set_u32(key, static_cast<std::uint32_t>(left));
  }
  return out;
}

}  // namespace llama
