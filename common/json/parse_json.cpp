#include "common/json/parse_json.h"

#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/json/json_fault.h"
#include "ggml/log.h"

namespace common {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

using Json = nlohmann::ordered_json;

/// A list or object whose end has not been read. The library's own builder searches all keys of an object for each new
/// one, and copies whole trees when an object grows; here both are done once, at the end.
struct Open {
  std::vector<std::string> keys;  // of an object; one more than values while a value is awaited
  std::vector<Json> values;
};

/// Where values with repeated keys are dropped, all but the last, which takes the first one's place.
void drop_repeated_keys(Open& open) {
  constexpr std::size_t kFew = 16;
  const std::size_t n = open.keys.size();
  std::unordered_map<std::string_view, std::size_t> seen;
  if (n > kFew) seen.reserve(n);
  std::vector<std::size_t> repeated;  // indices
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t first = i;
    if (n > kFew) {
      first = seen.try_emplace(open.keys[i], i).first->second;
    } else {
      first = 0;
      while (open.keys[first] != open.keys[i]) ++first;
    }
    if (first == i) continue;
    open.values[first].swap(open.values[i]);
    repeated.push_back(i);
  }
  if (repeated.empty()) return;
  std::size_t kept = 0, next = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (next < repeated.size() && repeated[next] == i) {
      ++next;
      release_json(open.values[i]);
      continue;
    }
    if (kept != i) {
      open.keys[kept] = std::move(open.keys[i]);
      open.values[kept].swap(open.values[i]);
    }
    ++kept;
  }
  open.keys.resize(kept);
  open.values.resize(kept);
}

/// Builds the tree from the parser's events, and refuses one that is too deep or too large.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder() override {
    release_json(root_);
    for (Open& open : open_)
      for (Json& value : open.values) release_json(value);
  }

  bool null() override { return add(Json(), 0); }
  bool boolean(bool value) override { return add(Json(value), 0); }
  bool number_integer(number_integer_t value) override { return add(Json(value), 0); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value), 0); }
  bool number_float(number_float_t value, const string_t& /*spelled*/) override { return add(Json(value), 0); }
  bool string(string_t& value) override { return add(Json(std::move(value)), kJsonNodeBytes); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return start(); }
  bool start_array(std::size_t /*size*/) override { return start(); }

  bool key(string_t& name) override {
    Open& open = open_.back();
    ++n_keys_;
    if (!count(kJsonNodeBytes)) return false;
    open.keys.push_back(std::move(name));
    return true;
  }

  bool end_object() override {
    Open& open = open_.back();
    drop_repeated_keys(open);
    Json value = Json::object();
    auto& members = value.get_ref<Json::object_t&>();
    members.reserve(open.keys.size());
    for (std::size_t i = 0; i < open.keys.size(); ++i)
      members.emplace_back(std::move(open.keys[i]), std::move(open.values[i]));
    open_.pop_back();
    return place(std::move(value));
  }

  bool end_array() override {
    Json value = Json::array();
    value.get_ref<Json::array_t&>() = std::move(open_.back().values);
    open_.pop_back();
    return place(std::move(value));
  }

  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

  [[nodiscard]] Json take() { return std::exchange(root_, Json()); }
  /// Why a tree was refused that may be valid JSON; empty for any other failure.
  [[nodiscard]] const std::string& too_large() const { return too_large_; }

 private:
  bool start() {
    if (open_.size() == static_cast<std::size_t>(kMaxJsonDepth) || !count_value(kJsonNodeBytes)) return false;
    open_.emplace_back();
    return true;
  }

  bool count(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= kMaxJsonTreeBytes) return true;
    too_large_ =
        strf("the first %zu values and %zu keys take more than %zu MiB", n_values_, n_keys_, kMaxJsonTreeBytes >> 20);
    return false;
  }
  bool count_value(std::size_t node_bytes) {
    ++n_values_;
    return count(sizeof(Json) + node_bytes);
  }

  bool add(Json&& value, std::size_t node_bytes) { return count_value(node_bytes) && place(std::move(value)); }

  bool place(Json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      try {
        open_.back().values.push_back(std::move(value));
      } catch (const std::bad_alloc&) {
        release_json(value);  // or its own end would ask for memory
        throw;
      }
    }
    return true;
  }

  Json root_;
  std::vector<Open> open_;
  std::size_t bytes_ = 0, n_values_ = 0, n_keys_ = 0;
  std::string too_large_;
};

[[noreturn]] void refuse(std::string_view text, std::string_view subject, std::string_view hint) {
  const std::optional<JsonFault> fault = find_json_fault(text, kMaxJsonDepth);
  std::string message(subject);
  if (!fault.has_value()) throw Error(ErrorCode::invalid_argument, message + " not valid JSON", std::string(hint));
  message += strf(" not valid JSON: line %d, column %d (byte %zu of %zu): ", fault->line, fault->column,
                  fault->offset + (fault->is_end_missing ? 0 : 1), text.size());
  if (fault->is_end_missing) message += strf("it ends too early, after %zu bytes: ", text.size());
  throw Error(ErrorCode::invalid_argument, message + fault->what, std::string(hint));
}

}  // namespace

nlohmann::ordered_json parse_json(std::string_view text, std::string_view subject, std::string_view hint) {
  // The library takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) refuse(text, subject, hint);
  Builder builder;
  if (Json::sax_parse(text, &builder)) return builder.take();
  if (builder.too_large().empty()) refuse(text, subject, hint);
  throw Error(ErrorCode::invalid_argument, std::string(subject) + " too large: " + builder.too_large(),
              "send less at a time");
}

std::optional<nlohmann::ordered_json> try_parse_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  Builder builder;
  if (!Json::sax_parse(text, &builder)) return std::nullopt;
  return builder.take();
}

void release_json(nlohmann::ordered_json& value) noexcept {
  if (value.is_array()) {
    auto& children = value.get_ref<Json::array_t&>();
    for (Json& child : children) release_json(child);
    children.clear();
  } else if (value.is_object()) {
    auto& children = value.get_ref<Json::object_t&>();
    for (auto& child : children) release_json(child.second);
    children.clear();
  }
  value = nullptr;
}

}  // namespace common
