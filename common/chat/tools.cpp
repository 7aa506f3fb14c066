#include "common/chat/tools.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/chat/messages.h"
#include "common/grammar/schema_check.h"
#include "ggml/error.h"

namespace common::chat {

namespace {
using nlohmann::ordered_json;

constexpr int kMaxReferences = 32;  // a chain of references that is longer goes in a circle

bool type_is(const ordered_json& type, std::string_view name) {
  if (type.is_string()) return type.get_ref<const std::string&>() == name;
  return type.is_array() &&
         std::any_of(type.begin(), type.end(), [&](const auto& t) { return t.is_string() && t == std::string(name); });
}

ValueKind kind_at(const ordered_json& given, const ordered_json& root, int depth);

/// Text if a branch is, else `unless_said` until a branch says the opposite: json where any branch may be what comes
/// (anyOf, oneOf), either where all of them hold and what one of them says is said (allOf).
ValueKind kind_of(const ordered_json& branches, const ordered_json& root, int depth, ValueKind unless_said) {
  ValueKind kind = unless_said;
  for (const auto& branch : branches) {
    const ValueKind k = kind_at(branch, root, depth + 1);
    if (k == ValueKind::text) return k;
    if (k != unless_said) kind = k;
  }
  return kind;
}

ValueKind kind_at(const ordered_json& given, const ordered_json& root, int depth) {
  const ordered_json& schema = resolved(given, root);
  if (!schema.is_object() || depth > kMaxReferences) return ValueKind::either;
  if (const auto type = schema.find("type"); type != schema.end())
    return type_is(*type, "string") ? ValueKind::text : ValueKind::json;
  if (const auto constant = schema.find("const"); constant != schema.end())
    return constant->is_string() ? ValueKind::text : ValueKind::json;
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    const bool any = std::any_of(values->begin(), values->end(), [](const auto& v) { return v.is_string(); });
    return any ? ValueKind::text : ValueKind::json;
  }
  for (const char* key : {"anyOf", "oneOf"})
    if (const auto branches = schema.find(key); branches != schema.end() && branches->is_array())
      return kind_of(*branches, root, depth, ValueKind::json);
  if (const auto branches = schema.find("allOf"); branches != schema.end() && branches->is_array())
    return kind_of(*branches, root, depth, ValueKind::either);
  for (const char* key : {"pattern", "minLength", "maxLength", "format"})
    if (schema.contains(key)) return ValueKind::text;
  for (const char* key : {"properties", "items", "prefixItems", "additionalProperties"})
    if (schema.contains(key)) return ValueKind::json;
  return ValueKind::either;
}
}  // namespace

namespace {

// A name is written into the prompt, the grammar and the marks of the call's format. With these signs the formats mark
// where a name ends: no name holds one with any model, so that a client's tools do not depend on the model.
constexpr std::string_view kMarkSigns = "\"'`()<>[]{}|,=\\";
// Each tool makes the grammar longer.
constexpr std::size_t kMaxTools = 1024;
constexpr std::size_t kMaxParameters = 4096;  // in tagged formats each is a rule with a schema of its own

/// The shape of one tool; `where_` is its place in the request.
class ToolCheck {
 public:
  ToolCheck(const ordered_json& tool, std::size_t index)
      : tool_(tool), where_("tools[" + std::to_string(index) + "]") {}

  void run() const {
    if (!tool_.is_object()) expected("", "an object with type and function", &tool_);
    const ordered_json* type = member(tool_, "type");
    if (type == nullptr || *type != "function") expected(".type", "\"function\", the only type there is", type);
    const ordered_json* function = member(tool_, "function");
    if (function == nullptr || !function->is_object()) expected(".function", "an object", function);
    check_name(member(*function, "name"));
    const ordered_json* description = member(*function, "description");
    if (description != nullptr && !description->is_string()) expected(".function.description", "a string", description);
    const ordered_json* strict = member(*function, "strict");
    if (strict != nullptr && !strict->is_boolean()) expected(".function.strict", "true or false", strict);
    const ordered_json* parameters = member(*function, "parameters");
    if (parameters != nullptr) check_parameters(*parameters);
  }

 private:
  /// null counts as absent.
  static const ordered_json* member(const ordered_json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }

  [[noreturn]] void refuse(const char* path, const std::string& what) const {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "Field '" + where_ + path + "': " + what);
  }
  [[noreturn]] void expected(const char* path, const char* what, const ordered_json* got) const {
    constexpr std::size_t kShown = 60;
    const std::string text = got == nullptr
                                 ? "nothing"
                                 : got->dump(-1, ' ', false, ordered_json::error_handler_t::replace).substr(0, kShown);
    refuse(path, "expected " + std::string(what) + ", got " + text);
  }

  void check_name(const ordered_json* name) const {
    constexpr const char* kPath = ".function.name";
    if (name == nullptr || !name->is_string()) expected(kPath, "a string", name);
    const auto& text = name->get_ref<const std::string&>();
    if (text.empty()) refuse(kPath, "the name is empty");
    if (text.size() > kMaxToolNameBytes) {
      refuse(kPath, "the name has " + std::to_string(text.size()) + " bytes, " + std::to_string(kMaxToolNameBytes) +
                        " are allowed");
    }
    const bool carried = std::all_of(text.begin(), text.end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x80 || (c > ' ' && c != 0x7F && kMarkSigns.find(c) == kMarkSigns.npos);
    });
    if (!carried) {
      expected(kPath,
               "a name such as get_weather, files.read or mcp:files/read, without blanks, control characters, quotes, "
               "brackets and | , = \\",
               name);
    }
  }

  void check_parameters(const ordered_json& parameters) const {
    if (!parameters.is_object()) expected(".function.parameters", "a JSON schema, an object", &parameters);
    const ordered_json* type = member(parameters, "type");
    if (type != nullptr && type->is_string() && *type != "object")
      expected(".function.parameters.type", "\"object\": arguments have names", type);
    const ordered_json* properties = member(parameters, "properties");
    if (properties != nullptr && properties->is_object() && properties->size() > kMaxParameters) {
      refuse(".function.parameters.properties",
             std::to_string(properties->size()) + " parameters, one tool may have " + std::to_string(kMaxParameters));
    }
    try {
      grammar::check_schema(parameters);
    } catch (const ggml::Error& error) {
      refuse(".function.parameters", error.message());
    }
  }

  const ordered_json& tool_;
  std::string where_;
};

}  // namespace

void check_tools(const ordered_json& tools) {
  const auto refuse = [](const std::string& what) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "Field 'tools" + what);
  };
  if (!tools.is_array()) refuse("': expected an array");
  if (tools.size() > kMaxTools) {
    refuse("': " + std::to_string(tools.size()) + " tools, one request may have " + std::to_string(kMaxTools));
  }
  std::map<std::string_view, std::size_t> names;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    ToolCheck(tools[i], i).run();
    const auto& name = tools[i]["function"]["name"].get_ref<const std::string&>();
    const auto [first, is_new] = names.try_emplace(name, i);
    if (is_new) continue;
    refuse("[" + std::to_string(i) + "].function.name': \"" + name + "\" is the name of tools[" +
           std::to_string(first->second) + "] too");
  }
}

const ordered_json& resolved(const ordered_json& schema, const ordered_json& root) {
  const ordered_json* at = &schema;
  for (int i = 0; i < kMaxReferences && at->is_object(); ++i) {
    const auto reference = at->find("$ref");
    if (reference == at->end() || !reference->is_string()) return *at;
    const auto& text = reference->get_ref<const std::string&>();
    if (text.rfind("#/", 0) != 0) return *at;
    try {
      const ordered_json::json_pointer pointer(text.substr(1));
      if (!root.contains(pointer)) return *at;
      at = &root.at(pointer);
    } catch (const ordered_json::exception&) {
      return *at;  // the grammar's builder says what is wrong with it
    }
  }
  return *at;
}

ValueKind value_kind(const ordered_json& schema, const ordered_json& root) {
  return kind_at(schema, root, 0);
}

Tool::Tool(std::string name, const ordered_json* parameters, int index)
    : name_(std::move(name)),
      schema_(
          std::make_unique<ordered_json>(parameters && parameters->is_object() ? *parameters : ordered_json::object())),
      index_(index) {}
Tool::~Tool() = default;
Tool::Tool(Tool&&) noexcept = default;
Tool& Tool::operator=(Tool&&) noexcept = default;

ValueKind Tool::parameter_kind(std::string_view key) const {
  const auto properties = schema_->find("properties");
  if (properties == schema_->end() || !properties->is_object()) return ValueKind::either;
  const auto property = properties->find(std::string(key));
  return property == properties->end() ? ValueKind::either : value_kind(*property, *schema_);
}

std::vector<Tool::Parameter> Tool::parameters() const {
  std::vector<Parameter> out;
  const ordered_json& object = resolved(*schema_, *schema_);
  const auto properties = object.find("properties");
  if (properties == object.end() || !properties->is_object()) return out;
  std::set<std::string> names;
  if (const auto required = object.find("required"); required != object.end() && required->is_array()) {
    for (const auto& name : *required)
      if (name.is_string()) names.insert(name.get<std::string>());
  }
  for (const auto& [key, schema] : properties->items()) out.push_back({key, &schema, names.contains(key)});
  return out;
}

ToolSet::ToolSet(const ordered_json& tools, std::string_view only) {
  int index = -1;
  for (const auto& tool : tools) {
    ++index;
    const auto& function = tool["function"];
    const auto& name = function["name"].get_ref<const std::string&>();
    if (!only.empty() && name != only) continue;
    const auto parameters = function.find("parameters");
    tools_.emplace_back(name, parameters == function.end() ? nullptr : &*parameters, index);
  }
}

const Tool* ToolSet::find(std::string_view name) const {
  const auto it = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& t) { return t.name() == name; });
  return it == tools_.end() ? nullptr : &*it;
}

}  // namespace common::chat
