#pragma once

#include <nlohmann/json_fwd.hpp>

namespace common::grammar {

/// Checks the keywords of the schema itself, not those of the schemas in it. Throws Error(invalid_argument) with the
/// JSON pointer of one that has a value which it cannot have. Pre: an object.
void check_schema_keywords(const nlohmann::ordered_json& schema);

}  // namespace common::grammar
