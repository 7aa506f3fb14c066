#include "common/json/parse_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
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

/// Builds a value from the events of the library's parser, in time that is linear in its members: the library itself
/// looks for each new key of an object among all the keys before it. Ends the parsing where arrays and objects nest too
/// deep, since copying, writing and destroying a value recurse per level.
class TreeBuilder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string& /*spelled*/) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // no text holds any
  bool start_object(std::size_t /*n_members*/) { return open(Json::object()); }
  bool key(std::string& key) {
    open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(key), nullptr);
    return true;
  }
  bool end_object() {
    keep_last_of_equal_keys(open_.back()->get_ref<Json::object_t&>());
    return close();
  }
  bool start_array(std::size_t /*n_items*/) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const Json::exception& /*error*/) { return false; }

  Json take() { return std::move(root_); }

 private:
  /// The place of the next value.
  Json& place() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return open_.back()->get_ref<Json::object_t&>().back().second;
    return open_.back()->get_ref<Json::array_t&>().emplace_back();
  }
  bool add(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json empty) {
    if (open_.size() >= static_cast<std::size_t>(kMaxJsonDepth)) return false;
    Json& value = place();
    value = std::move(empty);
    open_.push_back(&value);  // stays where it is: its parent grows only once it is closed
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  /// Of members with the same key the place of the first and the value of the last stay, as the library has it.
  static void keep_last_of_equal_keys(Json::object_t& members) {
    std::vector<std::size_t> order(members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto member = [&](std::size_t i) { return members.begin() + static_cast<std::ptrdiff_t>(i); };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return member(a)->first < member(b)->first; });
    const auto is_repeated = [&](std::size_t a, std::size_t b) { return member(a)->first == member(b)->first; };
    if (std::adjacent_find(order.begin(), order.end(), is_repeated) == order.end()) return;
    std::vector<bool> drop(members.size(), false);
    for (std::size_t i = 0, end = 0; i < order.size(); i = end) {
      for (end = i + 1; end < order.size() && is_repeated(order[i], order[end]); ++end) drop[order[end]] = true;
      if (end > i + 1) member(order[i])->second = std::move(member(order[end - 1])->second);
    }
    Json::object_t kept;
    for (std::size_t i = 0; i < members.size(); ++i)
      if (!drop[i]) kept.emplace_back(member(i)->first, std::move(member(i)->second));
    members = std::move(kept);
  }

  Json root_;
  std::vector<Json*> open_;  // arrays and objects that are not closed yet
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
  std::optional<Json> value = try_parse_json(text);
  if (!value.has_value()) refuse(text, subject, hint);
  return *std::move(value);
}

std::optional<nlohmann::ordered_json> try_parse_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return std::nullopt;  // the library takes it for the end of the text
  TreeBuilder builder;
  if (!Json::sax_parse(text, &builder)) return std::nullopt;
  return builder.take();
}

}  // namespace common
