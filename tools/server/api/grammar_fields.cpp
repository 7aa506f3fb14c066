#include "api/grammar_fields.h"

#include <utility>

#include "common/grammar/grammar_builder.h"
#include "common/grammar/grammar_mask.h"

namespace server {

using ggml::Error;

namespace {

/// Runs `make` and names the field in its errors.
template <class Make>
auto naming(std::string_view field, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    throw Error(error.code(), "Field '" + std::string(field) + "': " + error.message(), error.hint());
  }
}

}  // namespace

void set_grammar(GenerateRequest& pattern, std::string_view field, const std::string& gbnf, const Service& service) {
  pattern.grammar = gbnf;
  pattern.make_mask = nullptr;
  if (gbnf.empty()) return;
  auto compiled = naming(field, [&] { return service.grammars->get(gbnf); });
  pattern.make_mask = [compiled = std::move(compiled)]() -> std::unique_ptr<llama::TokenMask> {
    return std::make_unique<common::grammar::GrammarMask>(compiled);
  };
}

void read_grammar(const Fields& fields, const Service& service, GenerateRequest& pattern) {
  const std::string grammar = fields.text("grammar").value_or("");
  const Json* schema = fields.find("json_schema");
  // An empty text asks for nothing, as some clients send it.
  const bool has_schema = schema != nullptr && !(schema->is_string() && schema->get<std::string>().empty());
  if (!grammar.empty()) {
    set_grammar(pattern, "grammar", grammar, service);
  } else if (has_schema) {
    const std::string gbnf = naming("json_schema", [&] { return common::grammar::schema_to_gbnf(*schema); });
    set_grammar(pattern, "json_schema", gbnf, service);
  } else if (fields.find("grammar") == nullptr) {
    set_grammar(pattern, "grammar", service.grammar, service);
  }
}

}  // namespace server
