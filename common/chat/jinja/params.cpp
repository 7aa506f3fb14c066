#include "common/chat/jinja/params.h"

#include <algorithm>

#include "common/chat/jinja/repr.h"

namespace common::jinja {

Params::Params(Runtime& rt, std::string_view function, Args& args, std::initializer_list<std::string_view> names,
               std::size_t required)
    : rt_(rt), function_(function), names_(names), values_(names.size()) {
  if (args.positional.size() > names_.size())
    rt.fail(function_ + "() takes at most " + std::to_string(names_.size()) + " arguments, " +
            std::to_string(args.positional.size()) + " given");
  for (std::size_t i = 0; i < args.positional.size(); ++i) values_[i] = std::move(args.positional[i]);
  for (auto& [name, value] : args.named) {
    const auto at = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    if (at == names_.size()) rt.fail(function_ + "() got an unexpected keyword argument '" + name + "'");
    if (values_[at]) rt.fail(function_ + "() got multiple values for argument '" + name + "'");
    values_[at] = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i]) rt.fail(function_ + "() missing required argument '" + std::string(names_[i]) + "'");
}

Int Params::integer(std::size_t i, Int otherwise) const {
  if (!values_[i] || values_[i]->is_none()) return otherwise;
  Int n = 0;
  if (!values_[i]->to_int(n)) {
    if (values_[i]->is_undefined()) rt_.fail(values_[i]->undefined_message());
    rt_.fail(function_ + "(): argument '" + std::string(names_[i]) + "' must be an integer, not " +
             std::string(values_[i]->type_name()));
  }
  constexpr Int kFar = Int{1} << 120;
  return std::clamp(n, -kFar, kFar);
}

std::string Params::text(std::size_t i, std::string_view otherwise) const {
  return values_[i] ? to_str(rt_, *values_[i]) : std::string(otherwise);
}

std::optional<std::string> Params::string(std::size_t i) const {
  if (!values_[i] || values_[i]->is_none()) return std::nullopt;
  if (const std::string* s = values_[i]->as_text()) return *s;
  if (values_[i]->is_undefined()) rt_.fail(values_[i]->undefined_message());
  rt_.fail(function_ + "(): argument '" + std::string(names_[i]) + "' must be str, not " +
           std::string(values_[i]->type_name()));
}

}  // namespace common::jinja
