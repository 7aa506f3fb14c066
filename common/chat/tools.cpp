#include "common/chat/tools.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "common/chat/messages.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/schema_document.h"
#include "ggml/error.h"

namespace common::chat {

namespace {
using nlohmann::ordered_json;

constexpr int kMaxReferences = 32;  // a chain of references that is longer goes in a circle
// Branches that share what they lead to are walked through as often as there are ways to it; beyond so many steps the
// schema says nothing.
constexpr int kMaxSteps = 2000;

bool type_is(const ordered_json& type, std::string_view name) {
  if (type.is_string()) return type.get_ref<const std::string&>() == name;
  return type.is_array() &&
         std::any_of(type.begin(), type.end(), [&](const auto& t) { return t.is_string() && t == std::string(name); });
}

struct Walk {
  const ordered_json& root;
  int depth = 0;
  int& steps_left;

  [[nodiscard]] Walk deeper() const { return {root, depth + 1, steps_left}; }
  [[nodiscard]] bool goes_on() const { return depth <= kMaxReferences && --steps_left > 0; }
};

ValueKind kind_at(const ordered_json& given, const Walk& walk);

/// Text if a branch is, else `unless_said` until a branch says the opposite: json where any branch may be what comes
/// (anyOf, oneOf), either where all of them hold and what one of them says is said (allOf).
ValueKind kind_of(const ordered_json& branches, const Walk& walk, ValueKind unless_said) {
  ValueKind kind = unless_said;
  for (const auto& branch : branches) {
    const ValueKind k = kind_at(branch, walk.deeper());
    if (k == ValueKind::text) return k;
    if (k != unless_said) kind = k;
  }
  return kind;
}

ValueKind kind_at(const ordered_json& given, const Walk& walk) {
  const ordered_json& schema = resolved(given, walk.root);
  if (!schema.is_object() || !walk.goes_on()) return ValueKind::either;
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
      return kind_of(*branches, walk, ValueKind::json);
  if (const auto branches = schema.find("allOf"); branches != schema.end() && branches->is_array())
    return kind_of(*branches, walk, ValueKind::either);
  for (const char* key : {"pattern", "minLength", "maxLength", "format"})
    if (schema.contains(key)) return ValueKind::text;
  for (const char* key : {"properties", "items", "prefixItems", "additionalProperties"})
    if (schema.contains(key)) return ValueKind::json;
  return ValueKind::either;
}

ValueTypes operator|(ValueTypes a, ValueTypes b) {
  return {a.text || b.text, a.object || b.object, a.list || b.list, a.other || b.other};
}
ValueTypes operator&(ValueTypes a, ValueTypes b) {
  return {a.text && b.text, a.object && b.object, a.list && b.list, a.other && b.other};
}

ValueTypes type_of(const ordered_json& value) {
  return {value.is_string(), value.is_object(), value.is_array(), !value.is_string() && !value.is_structured()};
}

ValueTypes types_at(const ordered_json& given, const Walk& walk) {
  constexpr ValueTypes kNone{false, false, false, false};
  const ordered_json& schema = resolved(given, walk.root);
  if (!schema.is_object() || !walk.goes_on()) return {};
  ValueTypes types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    const auto is = [&](const char* name) { return type_is(*type, name); };
    types = {is("string"), is("object"), is("array"), is("number") || is("integer") || is("boolean") || is("null")};
  }
  if (const auto constant = schema.find("const"); constant != schema.end()) types = types & type_of(*constant);
  const auto any_of = [&](const char* key, auto type_of_branch) {
    const auto branches = schema.find(key);
    if (branches == schema.end() || !branches->is_array()) return;
    ValueTypes any = kNone;
    for (const auto& branch : *branches) any = any | type_of_branch(branch);
    types = types & any;
  };
  any_of("enum", type_of);
  const auto inside = [&](const ordered_json& branch) { return types_at(branch, walk.deeper()); };
  any_of("anyOf", inside);
  any_of("oneOf", inside);
  if (const auto all = schema.find("allOf"); all != schema.end() && all->is_array())
    for (const auto& member : *all) types = types & inside(member);
  return types;
}

/// Adds the values that a schema lists; false when it allows others.
bool add_listed(const ordered_json& given, const Walk& walk, std::vector<std::string>& values) {
  const ordered_json& schema = resolved(given, walk.root);
  if (!schema.is_object() || !walk.goes_on()) return false;
  const auto add = [&](const ordered_json& value) {
    values.push_back(value.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  };
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto branches = schema.find(key);
    if (branches == schema.end() || !branches->is_array()) continue;
    return std::all_of(branches->begin(), branches->end(), [&](const auto& branch) {
      return branch == false || add_listed(branch, walk.deeper(), values);
    });
  }
  if (const auto constant = schema.find("const"); constant != schema.end()) {
    add(*constant);
  } else if (const auto list = schema.find("enum"); list != schema.end() && list->is_array()) {
    for (const auto& value : *list) add(value);
  } else {
    const auto type = schema.find("type");
    if (type == schema.end() || *type != "null") return false;
    add(nullptr);
  }
  return true;
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
  int steps_left = kMaxSteps;
  return kind_at(schema, {root, 0, steps_left});
}

std::vector<std::string> listed_values(const ordered_json& schema, const ordered_json& root) {
  int steps_left = kMaxSteps;
  std::vector<std::string> values;
  if (!add_listed(schema, {root, 0, steps_left}, values)) values.clear();
  return values;
}

std::string raw_text(const std::string& json) {
  return json.front() == '"' ? ordered_json::parse(json).get<std::string>() : json;
}

ValueTypes value_types(const ordered_json& schema, const ordered_json& root) {
  int steps_left = kMaxSteps;
  return types_at(schema, {root, 0, steps_left});
}

Tool::~Tool() = default;
Tool::Tool(Tool&&) noexcept = default;
Tool& Tool::operator=(Tool&&) noexcept = default;

ValueKind Tool::parameter_kind(std::string_view key) const {
  const Parameter* found = parameter(key);
  return found == nullptr ? ValueKind::either : value_kind(*found->schema, *schema_);
}

const Tool::Parameter* Tool::parameter(std::string_view key) const {
  const auto it =
      std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& p) { return p.key == key; });
  return it == parameters_.end() ? nullptr : &*it;
}

/// The parameters that a schema of arguments lists, itself or where it leads.
class Tool::Collector {
 public:
  explicit Collector(const ordered_json& root) : document_(root), empty_(document_) {}

  std::vector<Parameter> run() {
    add(document_.root(), "#", true, 0);
    add_demanded();
    std::erase_if(found_, [](const Parameter& p) { return p.impossible && !p.required; });
    return std::move(found_);
  }

 private:
  static const ordered_json* member(const ordered_json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() ? nullptr : &*it;
  }

  /// `holds`: whether arguments must be of this schema, or may be of another one instead.
  void add(const ordered_json& schema, const std::string& pointer, bool holds, int depth) {
    if (!schema.is_object() || depth > kMaxReferences) return;
    if (!(holds ? seen_where_it_holds_ : seen_).insert(&schema).second) return;
    if (const auto* reference = member(schema, "$ref"); reference != nullptr && reference->is_string()) {
      const std::string target = *reference;
      if (const ordered_json* at = document_.find(target)) add(*at, target, holds, depth + 1);
      return;
    }
    if (const auto* list = member(schema, "properties"); list != nullptr && list->is_object()) {
      for (const auto& [key, property] : list->get_ref<const ordered_json::object_t&>()) {
        if (!keys_.insert(key).second) continue;
        found_.push_back(
            {key, &property, false, empty_.is_empty(property), pointer + "/properties/" + grammar::pointer_step(key)});
      }
    }
    if (const auto* names = member(schema, "required"); holds && names != nullptr && names->is_array()) {
      for (const auto& name : *names)
        if (name.is_string()) demanded_.push_back(name.get<std::string>());
    }
    if (const auto* further = member(schema, "additionalProperties");
        holds && further != nullptr && !further->is_null()) {
      further_ = further;
      further_pointer_ = pointer + "/additionalProperties";
    }
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
      const auto* list = member(schema, key);
      if (list == nullptr || !list->is_array()) continue;
      const bool all = std::string_view(key) == "allOf";
      for (std::size_t i = 0; i < list->size(); ++i)
        add((*list)[i], pointer + "/" + key + "/" + std::to_string(i), holds && all, depth + 1);
    }
  }

  void add_demanded() {
    static const ordered_json kAnything = true;
    const std::unordered_set<std::string> demanded(demanded_.begin(), demanded_.end());
    for (Parameter& parameter : found_) parameter.required = demanded.contains(parameter.key);
    for (std::string& name : demanded_) {
      if (!keys_.insert(name).second) continue;
      const ordered_json* schema = further_ != nullptr ? further_ : &kAnything;
      found_.push_back({std::move(name), schema, true, empty_.is_empty(*schema), further_pointer_});
    }
  }

  grammar::SchemaDocument document_;
  grammar::EmptySchemas empty_;
  std::vector<Parameter> found_;
  std::unordered_set<std::string> keys_;
  std::unordered_set<const ordered_json*> seen_, seen_where_it_holds_;
  std::vector<std::string> demanded_;
  const ordered_json* further_ = nullptr;
  std::string further_pointer_;
};

Tool::Tool(std::string name, const ordered_json* parameters, int index)
    : name_(std::move(name)),
      schema_(
          std::make_unique<ordered_json>(parameters && parameters->is_object() ? *parameters : ordered_json::object())),
      parameters_(Collector(*schema_).run()),
      index_(index) {}

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
