#include "common/chat/jinja/globals.h"

#include <algorithm>
#include <unordered_map>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/filters.h"
#include "common/chat/jinja/ordering.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
using Function = Value (*)(Runtime& rt, Args& args);

class NativeFunction final : public Object {
 public:
  NativeFunction(std::string_view name, Function function) : name_(name), function_(function) {}
  [[nodiscard]] std::string_view type_name() const override { return "function"; }
  [[nodiscard]] std::string repr() const override { return "<function " + std::string(name_) + ">"; }
  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return function_(rt, args); }

 private:
  std::string_view name_;  // of the table below
  Function function_;
};

Value range(Runtime& rt, Args& args) {
  constexpr Int kMaxRange = 100000;
  Params p(rt, "range", args, {"start", "stop", "step"}, 1);
  const bool one = !p.has(1);
  const Int start = one ? 0 : p.integer(0, 0), stop = one ? p.integer(0, 0) : p.integer(1, 0), step = p.integer(2, 1);
  constexpr Int kFar = Int{1} << 100;
  if (step == 0) rt.fail("range() arg 3 must not be zero");
  if (start > kFar || start < -kFar || stop > kFar || stop < -kFar || step > kFar || step < -kFar)
    rt.fail("range() argument too large");
  const Int count = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  if (count > kMaxRange) rt.fail_limit("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  std::vector<Value> items;
  for (Int i = 0; i < count; ++i) items.emplace_back(start + i * step);
  std::string label = "range(" + to_str(start) + ", " + to_str(stop);
  if (step != 1) label += ", " + to_str(step);
  return rt.sequence(SequenceKind::range, std::move(items), label + ")");
}

Value dict(Runtime& rt, Args& args) {
  if (args.positional.size() > 1)
    rt.fail("dict expected at most 1 argument, got " + std::to_string(args.positional.size()));
  Dict* d = rt.dict();
  update_dict(rt, *d, args);
  return d;
}

Value make_namespace(Runtime& rt, Args& args) {
  return rt.object<Namespace>(dict(rt, args).as_dict());
}

Value raise_exception(Runtime& rt, Args& args) {
  Params p(rt, "raise_exception", args, {"message"}, 1);
  rt.raise(p.text(0, ""));
}

Value strftime_now(Runtime& rt, Args& args) {
  Params p(rt, "strftime_now", args, {"format"}, 1);
  const std::string format = p.text(0, "");
  if (format.empty()) return rt.text({});
  if (format.size() > 4096) rt.fail_limit("strftime_now: the format is longer than 4096 bytes");
  // strftime() returns 0 for a buffer that is too small and for an empty result alike: the blank tells them apart.
  const std::string padded = format + " ";
  std::string out(std::size_t{1} << 16, '\0');
  const std::tm now = rt.now();
  const std::size_t n = std::strftime(out.data(), out.size(), padded.c_str(), &now);
  if (n == 0) rt.fail_limit("strftime_now: the text is longer than 65536 bytes");
  out.resize(n - 1);
  return rt.text(std::move(out));
}

class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  [[nodiscard]] std::string_view type_name() const override { return "Cycler"; }
  Value attribute(Runtime& rt, std::string_view name) override;
  Value next() {
    Value v = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return v;
  }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

class CyclerMethod final : public Object {
 public:
  CyclerMethod(Cycler* cycler, bool advances) : cycler_(cycler), advances_(advances) {}
  [[nodiscard]] std::string_view type_name() const override { return "method"; }
  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override {
    Params p(rt, "cycler", args, {});
    if (advances_) return cycler_->next();
    cycler_->reset();
    return None{};
  }

 private:
  Cycler* cycler_;
  bool advances_;
};

Value Cycler::attribute(Runtime& rt, std::string_view name) {
  if (name == "current") return items_[at_];
  if (name == "next" || name == "reset") return rt.object<CyclerMethod>(this, name == "next");
  return Object::attribute(rt, name);
}

Value cycler(Runtime& rt, Args& args) {
  if (args.positional.empty()) rt.fail("cycler: at least one item has to be provided");
  rt.charge(args.positional.size() * sizeof(Value));
  return rt.object<Cycler>(std::move(args.positional));
}

class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  [[nodiscard]] std::string_view type_name() const override { return "Joiner"; }
  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override {
    Params p(rt, "joiner", args, {});
    if (used_) return separator_;
    used_ = true;
    return rt.text({});
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value joiner(Runtime& rt, Args& args) {
  Params p(rt, "joiner", args, {"sep"});
  return rt.object<Joiner>(rt.text(p.text(0, ", ")));
}

// Filler text: paragraphs of made-up sentences.
Value lipsum(Runtime& rt, Args& args) {
  Params p(rt, "lipsum", args, {"n", "html", "min", "max"});
  constexpr std::string_view kWords[] = {"lorem", "ipsum",  "dolor",  "sit",    "amet",    "nulla",  "porta", "vitae",
                                         "felis", "magna",  "tellus", "ornare", "viverra", "cursus", "massa", "semper",
                                         "risus", "mattis", "urna",   "neque",  "pretium", "lectus", "augue", "tempor"};
  const auto paragraphs = static_cast<int>(std::clamp<Int>(p.integer(0, 5), 0, 100));
  const bool html = p.flag(1, true);
  const auto least = static_cast<std::uint32_t>(std::clamp<Int>(p.integer(2, 20), 1, 1000));
  const auto most = static_cast<std::uint32_t>(std::clamp<Int>(p.integer(3, 100), Int{least} + 1, 1001));
  std::string out;
  for (int i = 0; i < paragraphs; ++i) {
    std::string text;
    const std::uint32_t n = least + rt.next_random() % (most - least);
    for (std::uint32_t w = 0; w < n; ++w) {
      const std::string_view word = kWords[rt.next_random() % std::size(kWords)];
      const bool starts = w % 9 == 0;
      if (w > 0) text += starts ? ". " : " ";
      text += starts ? capitalize(word) : std::string(word);
    }
    if (i > 0) out += html ? "\n" : "\n\n";
    out += html ? "<p>" + text + ".</p>" : text + ".";
  }
  return rt.text(std::move(out));
}

// `self` of Jinja gives access to blocks; here it only exists.
class TemplateReference final : public Object {
 public:
  [[nodiscard]] std::string_view type_name() const override { return "TemplateReference"; }
};

const std::unordered_map<std::string_view, Function>& functions() {
  static const std::unordered_map<std::string_view, Function> table = {
      {"range", range},
      {"dict", dict},
      {"cycler", cycler},
      {"joiner", joiner},
      {"lipsum", lipsum},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  return table;
}
}  // namespace

Value find_global(Runtime& rt, std::string_view name) {
  const auto it = functions().find(name);
  if (it != functions().end()) return rt.object<NativeFunction>(it->first, it->second);
  if (name == "self") return rt.object<TemplateReference>();
  return Value::undefined({{}, std::string(name), {}});
}

Value Namespace::attribute(Runtime& rt, std::string_view name) {
  const Value* found = attributes_->find(name);
  return found ? *found : Object::attribute(rt, name);
}

bool Namespace::assign(Runtime& rt, std::string_view name, Value value) {
  attributes_->set(rt, rt.text(std::string(name)), std::move(value));
  return true;
}

}  // namespace common::jinja
