#pragma once

#include <string>
#include <string_view>

#include "api/fields.h"
#include "api/service.h"
#include "engine/request.h"

namespace server {

/// Makes the answers of `pattern` follow a GBNF text; an empty one takes the rule away. Throws Error(invalid_argument,
/// exceeds_limit) with the field's name and the line and column of what is wrong.
void set_grammar(GenerateRequest& pattern, std::string_view field, const std::string& gbnf, const Service& service);

/// Fields `grammar` and, when that asks for nothing, `json_schema`; without both the server's own grammar. Throws as
/// set_grammar(); for a schema with the JSON pointer of what is wrong.
void read_grammar(const Fields& fields, const Service& service, GenerateRequest& pattern);

}  // namespace server
