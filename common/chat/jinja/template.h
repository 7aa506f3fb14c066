#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "ggml/error.h"

namespace common::jinja {

/// A place in a template's source; both count from 1, columns in code points.
struct SourcePos {
  int line = 1;
  int column = 1;
};

/// A template that does not parse, or one that failed while it was rendered.
///
/// `what()` is "line L, column C: detail". `raised_by_template()` tells a message the template's author chose
/// (raise_exception) from one of the engine.
class TemplateError : public ggml::Error {
 public:
  enum class Origin : std::uint8_t { syntax, runtime, raised, limit };
  TemplateError(Origin origin, SourcePos pos, std::string detail);

  [[nodiscard]] SourcePos pos() const noexcept { return pos_; }
  [[nodiscard]] const std::string& detail() const noexcept { return detail_; }
  [[nodiscard]] Origin origin() const noexcept { return origin_; }
  [[nodiscard]] bool raised_by_template() const noexcept { return origin_ == Origin::raised; }

 private:
  Origin origin_;
  SourcePos pos_;
  std::string detail_;
};

/// What one rendering may use. A template comes from a model file, so it is not trusted: without bounds one line of it
/// could hang or exhaust the server.
struct Limits {
  std::size_t source_bytes = std::size_t{4} << 20;
  std::size_t output_bytes = std::size_t{64} << 20;
  /// Live strings, lists and dicts; eight times the size of the context is allowed on top.
  std::size_t memory_bytes = std::size_t{128} << 20;
  /// Evaluated nodes, iterations and, for long strings, one for every 64 bytes that are copied and for every 8 that are
  /// looked at one by one; four for every byte of the context are allowed on top.
  std::uint64_t steps = 20'000'000;
  int nesting = 200;                               // of source: brackets and tags
  int recursion = 250;                             // of macros, recursive loops and call blocks while rendering
  std::size_t stack_bytes = std::size_t{2} << 20;  // of the rendering thread
};

struct RenderOptions {
  Limits limits;
  /// For templates that were written for laxer engines than Jinja2: a macro sees the variables of the place that calls
  /// it, `set` gives a dict a member, and an attribute of something undefined is undefined.
  bool lax = false;
  /// The moment strftime_now() shows, as local time; now when empty.
  std::optional<std::tm> now;
};

struct ParsedTemplate;  // ast.h

/// A parsed Jinja2 template, set up as the transformers library does: trim_blocks, lstrip_blocks, loop controls, the
/// `generation` tag, no autoescape, lists and dicts may be modified. Immutable; any number of threads may render.
class Template {
 public:
  /// Throws TemplateError (syntax or limit).
  explicit Template(std::string_view source, const Limits& limits = {});

  /// Renders with the members of the object `context` as global variables. Throws TemplateError.
  [[nodiscard]] std::string render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

 private:
  std::shared_ptr<const ParsedTemplate> parsed_;  // shared so that a Template copies cheaply
};

}  // namespace common::jinja
