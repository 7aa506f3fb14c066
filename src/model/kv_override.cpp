#include "model/kv_override.h"

#include <charconv>
#include <cstdlib>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

namespace {

constexpr std::size_t kMaxKey = 127;
constexpr std::size_t kMaxValue = 127;

[[noreturn]] void refuse(const KvOverride& entry, const std::string& why) {
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    "metadata override " + entry.key.substr(0, kMaxKey) + "=" + entry.type + ":" +
                        entry.value.substr(0, kMaxValue) + ": " + why,
                    "write KEY=TYPE:VALUE with TYPE int, float, bool or str");
}

ggml::gguf::Value parse_int(const KvOverride& entry) {
  std::int64_t number = 0;
  const char* end = entry.value.data() + entry.value.size();
  const auto [stop, error] = std::from_chars(entry.value.data(), end, number);
  if (error != std::errc{} || stop != end) refuse(entry, "not a whole number of 64 bits");
  return {ggml::gguf::ValueType::i64, number};
}

ggml::gguf::Value parse_float(const KvOverride& entry) {
  double number = 0.0;
  const char* end = entry.value.data() + entry.value.size();
  const auto [stop, error] = std::from_chars(entry.value.data(), end, number);
  if (error != std::errc{} || stop != end) refuse(entry, "not a number");
  return {ggml::gguf::ValueType::f64, number};
}

}  // namespace

void apply_overrides(std::span<const KvOverride> overrides, ggml::gguf::Metadata& metadata) {
  for (const KvOverride& entry : overrides) {
    if (entry.key.empty() || entry.key.size() > kMaxKey) refuse(entry, "the key must have 1 to 127 bytes");
    if (entry.value.size() > kMaxValue) refuse(entry, "the value must have at most 127 bytes");
    if (entry.type == "int")
      metadata.set(entry.key, parse_int(entry));
    else if (entry.type == "float")
      metadata.set(entry.key, parse_float(entry));
    else if (entry.type == "bool" && (entry.value == "true" || entry.value == "false"))
      metadata.set_bool(entry.key, entry.value == "true");
    else if (entry.type == "bool")
      refuse(entry, "true or false expected");
    else if (entry.type == "str")
      metadata.set_string(entry.key, entry.value);
    else
      refuse(entry, "unknown type");
    ggml::logf(ggml::LogLevel::info, "metadata override key=%s value=%s", entry.key.c_str(), entry.value.c_str());
  }
}

}  // namespace llama
