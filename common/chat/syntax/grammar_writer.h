#pragma once

#include <string>

#include "common/chat/tools.h"
#include "common/grammar/grammar_builder.h"
#include "common/grammar/notation.h"

namespace common::chat::syntax {

/// What elements need to write themselves as a grammar.
class GrammarWriter {
 public:
  GrammarWriter(grammar::GrammarBuilder& builder, const ToolSet& tools, bool parallel)
      : builder_(builder), tools_(tools), parallel_(parallel) {}

  [[nodiscard]] grammar::GrammarBuilder& builder() { return builder_; }
  [[nodiscard]] const ToolSet& tools() const { return tools_; }
  [[nodiscard]] bool parallel() const { return parallel_; }

  /// The white space that a model may put where the format has some.
  [[nodiscard]] std::string space() { return builder_.rule("space", R"gbnf(| " " | "\n"{1,2} [ \t]{0,20})gbnf"); }
  /// The arguments of the tool as a JSON object, or in another notation. Errors name the tool.
  [[nodiscard]] std::string arguments(const grammar::Notation* notation = nullptr);
  /// A value of the parameter's schema. Errors name tool and parameter.
  [[nodiscard]] std::string value(const grammar::Notation* notation = nullptr);
  /// Throws the error for a parameter that must be there under a name that the format cannot carry.
  void refuse_key();

  // The tool whose call, and the parameter whose value is being written; null outside.
  const Tool* tool = nullptr;
  const Tool::Parameter* parameter = nullptr;

 private:
  grammar::GrammarBuilder& builder_;
  const ToolSet& tools_;
  bool parallel_;
};

}  // namespace common::chat::syntax
