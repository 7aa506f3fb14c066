#pragma once

#include <string>

#include "api/fields.h"
#include "api/service.h"

/// The endpoints that answer at once, without the engine's loop.
namespace server {

[[nodiscard]] Json models_json(const Service& service);
[[nodiscard]] Json props_json(const Service& service);
[[nodiscard]] Json slots_json(const Service& service, const EngineStatus& status);
/// The text of GET /metrics.
[[nodiscard]] std::string metrics_text(const EngineStatus& status);
/// The body of the answer to POST /tokenize. As text at once: a tree of millions of tokens would take many times the
/// memory.
[[nodiscard]] std::string tokenize_answer(const Fields& fields, const Service& service);
[[nodiscard]] Json detokenize_json(const Fields& fields, const Service& service);
/// The page at `/`: model, state, and a command to try. `curl`: the command up to the path.
[[nodiscard]] std::string web_page(const Service* service, const std::string& curl);

}  // namespace server
