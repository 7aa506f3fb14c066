#pragma once

#include <nlohmann/json_fwd.hpp>

namespace common::grammar {

/// Checks the keywords of a schema and of all schemas in it, also of those that no grammar is made of. Throws
/// Error(invalid_argument) with the JSON pointer of one that has a value which it cannot have, Error(exceeds_limit) for
/// more than 80,000 schemas.
void check_schema(const nlohmann::ordered_json& schema);

}  // namespace common::grammar
