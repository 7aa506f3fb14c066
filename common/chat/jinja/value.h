#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace common::jinja {

class Runtime;
class Value;

/// Integers of a template. Python's are unbounded; 128 bits hold every JSON integer, and what does not fit is an error.
__extension__ typedef __int128 Int;

/// Immutable text (UTF-8), shared by the values that hold it. Text made while rendering gives its bytes back to the
/// rendering's memory budget when the last value lets go.
class StrData {
 public:
  explicit StrData(std::string text, Runtime* owner = nullptr);
  ~StrData();
  StrData(const StrData&) = delete;
  StrData& operator=(const StrData&) = delete;
  const std::string text;

 private:
  Runtime* owner_;
};
using Str =
    std::shared_ptr<const StrData>;  // shared: constants of the syntax tree live on in the values of a rendering

/// Why a value is undefined: becomes the message if it is used.
struct UndefinedInfo {
  std::string owner;    // "dict object", when an attribute is missing
  std::string name;     // the variable or attribute
  std::string message;  // instead of both
  [[nodiscard]] std::string text() const;
};
struct None {};

enum class SequenceKind : std::uint8_t { list, tuple, range, view, generator };

/// list, tuple, range(), a dict's keys() / values() / items(), or what a lazy filter yields. Owned by the Runtime.
struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  std::string label;  // range: as repr prints it; view: "dict_keys" ...
};

/// Insertion-ordered mapping. Owned by the Runtime.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  /// Null when absent, or when the key cannot be hashed.
  [[nodiscard]] const Value* find(Runtime& rt, const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// Fails the rendering when the key cannot be hashed.
  void set(Runtime& rt, const Value& key, Value value);
  bool erase(Runtime& rt, const Value& key);
  void clear();
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  [[nodiscard]] std::ptrdiff_t position(Runtime& rt, const Value& key) const;
  void index_from(std::size_t first, Runtime& rt);

  std::vector<Entry> entries_;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash -> position; empty while entries_ are few
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Namespaces, functions, macros, loops and other things with identity. Owned by the Runtime.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  [[nodiscard]] virtual std::string_view type_name() const = 0;
  [[nodiscard]] virtual std::string repr() const;
  [[nodiscard]] virtual bool callable() const { return false; }
  virtual Value call(Runtime& rt, Args& args);
  /// Undefined when there is no such attribute.
  virtual Value attribute(Runtime& rt, std::string_view name);
  /// False when attributes cannot be assigned.
  virtual bool assign(Runtime& rt, std::string_view name, Value value);
};

/// Any value a template handles. Cheap to copy: text and undefined values are shared, containers are referred to.
class Value {
 public:
  Value() = default;                  // undefined without a reason
  Value(None) : v_(None{}) {}         // NOLINT(google-explicit-constructor)
  Value(bool b) : v_(b) {}            // NOLINT(google-explicit-constructor)
  Value(Int i) : v_(i) {}             // NOLINT(google-explicit-constructor)
  Value(double d) : v_(d) {}          // NOLINT(google-explicit-constructor)
  Value(Str s) : v_(std::move(s)) {}  // NOLINT(google-explicit-constructor)
  Value(Sequence* s) : v_(s) {}       // NOLINT(google-explicit-constructor)
  Value(Dict* d) : v_(d) {}           // NOLINT(google-explicit-constructor)
  Value(Object* o) : v_(o) {}         // NOLINT(google-explicit-constructor)
  static Value integer(std::int64_t i) { return Value(static_cast<Int>(i)); }
  static Value undefined(UndefinedInfo info) {
    Value v;
    v.v_ = std::make_shared<const UndefinedInfo>(std::move(info));
    return v;
  }

  [[nodiscard]] bool is_undefined() const { return v_.index() == 0; }
  [[nodiscard]] bool is_none() const { return std::holds_alternative<None>(v_); }
  [[nodiscard]] const bool* as_bool() const { return std::get_if<bool>(&v_); }
  [[nodiscard]] const Int* as_int() const { return std::get_if<Int>(&v_); }
  [[nodiscard]] const double* as_float() const { return std::get_if<double>(&v_); }
  [[nodiscard]] const std::string* as_text() const {
    const Str* s = std::get_if<Str>(&v_);
    return s ? &(*s)->text : nullptr;
  }
  [[nodiscard]] Sequence* as_sequence() const { return get_pointer<Sequence>(); }
  [[nodiscard]] Dict* as_dict() const { return get_pointer<Dict>(); }
  [[nodiscard]] Object* as_object() const { return get_pointer<Object>(); }
  /// bool counts as an integer, as in Python.
  [[nodiscard]] bool to_int(Int& out) const;
  [[nodiscard]] bool is_number() const { return as_int() || as_float() || as_bool(); }
  /// Pre: is_undefined(). What using it should say.
  [[nodiscard]] std::string undefined_message() const;
  [[nodiscard]] bool truthy() const;
  /// "str", "int", "NoneType" ...
  [[nodiscard]] std::string_view type_name() const;
  /// As Jinja's messages name it: "dict object", "None".
  [[nodiscard]] std::string described() const;

 private:
  template <class T>
  [[nodiscard]] T* get_pointer() const {
    T* const* p = std::get_if<T*>(&v_);
    return p ? *p : nullptr;
  }
  using UndefinedPtr = std::shared_ptr<const UndefinedInfo>;  // shared by copies of the value
  std::variant<UndefinedPtr, None, bool, Int, double, Str, Sequence*, Dict*, Object*> v_;
};

}  // namespace common::jinja
