#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report.h"

namespace gguf_tool {
namespace {

using ggml::gguf::Array;
using ggml::gguf::Value;
using ggml::gguf::ValueType;
using Json = nlohmann::ordered_json;

/// A float as the shortest decimal number that reads back as it (1e-06, not 9.999999974752427e-07). JSON has no
/// infinities and no NaN: they become strings.
Json float_json(double value, ValueType type) {
  if (!std::isfinite(value)) return float_text(value, type);
  if (type != ValueType::f32) return value;
  const std::string text = float_text(value, type);
  double shortest = value;
  std::from_chars(text.data(), text.data() + text.size(), shortest);
  return shortest;
}

Json array_json(const Array& array) {
  if (array.element == ValueType::string) return array.strings;
  Json out = Json::array();
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (array.element == ValueType::f32 || array.element == ValueType::f64) {
      out.push_back(float_json(array.number(i), array.element));
    } else if (array.element == ValueType::boolean) {
      out.push_back(array.integer(i) != 0);
    } else if (array.element == ValueType::u64) {
      out.push_back(static_cast<std::uint64_t>(array.integer(i)));
    } else {
      out.push_back(array.integer(i));
    }
  }
  return out;
}

Json value_json(const Value& value) {
  Json out{{"type", value_type_name(value.type)}};
  if (const auto* array = std::get_if<Array>(&value.data)) {
    out["element"] = value_type_name(array->element);
    out["value"] = array_json(*array);
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    out["value"] = *text;
  } else if (const auto* number = std::get_if<double>(&value.data)) {
    out["value"] = float_json(*number, value.type);
  } else if (const auto* flag = std::get_if<bool>(&value.data)) {
    out["value"] = *flag;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    out["value"] = *integer;
  } else {
    out["value"] = std::get<std::uint64_t>(value.data);
  }
  return out;
}

Json tensor_json(const ggml::gguf::TensorInfo& tensor) {
  Json shape = Json::array();
  for (int axis = 0; axis < std::max(tensor.n_dims, 1); ++axis) shape.push_back(tensor.shape[axis]);
  return {{"name", tensor.name},       {"type", type_info(tensor.type).name},
          {"shape", std::move(shape)}, {"bytes", tensor.bytes},
          {"offset", tensor.offset},   {"file", tensor.shard}};
}

}  // namespace

std::string json_report(const ggml::gguf::File& file) {
  Json files = Json::array();
  for (const ggml::gguf::Shard& shard : file.shards()) {
    files.push_back({{"path", shard.path},
                     {"bytes", shard.file_bytes},
                     {"version", shard.version},
                     {"alignment", shard.alignment},
                     {"data_start", shard.data_start}});
  }
  Json metadata = Json::object();
  // Keys are unique already: appended as to a list, since looking each up would take quadratic time.
  auto& members = metadata.get_ref<Json::object_t&>();
  for (const auto& [key, value] : file.metadata().entries()) {
    static_cast<Json::object_t::Container&>(members).emplace_back(key, value_json(value));
  }
  Json tensors = Json::array();
  for (const ggml::gguf::TensorInfo& tensor : file.tensors()) tensors.push_back(tensor_json(tensor));
  Json types = Json::object();
  for (const TypeTotal& total : totals_per_type(file)) {
    types[std::string(type_info(total.type).name)] = {
        {"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
  }
  const Json report{{"files", std::move(files)},
                    {"metadata", std::move(metadata)},
                    {"tensors", std::move(tensors)},
                    {"types", std::move(types)}};
  // Strings in files may be no UTF-8: what is none becomes U+FFFD.
  return report.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gguf_tool
