#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "api/service.h"

/// LoRA adapters in requests and answers.
namespace server {

/// [{"id": i, "scale": s}, ...] as one scale per adapter, 0 for those that are not listed. Throws
/// Error(invalid_argument) that names `field` for another form, an id that no adapter has or that is listed twice, and
/// a scale that is no finite number.
[[nodiscard]] std::vector<float> read_adapter_scales(std::string_view field, const Json& list, std::size_t n_adapters);
/// The other way round, every adapter listed.
[[nodiscard]] Json scales_json(std::span<const float> scales);

/// GET /lora-adapters.
[[nodiscard]] Json adapters_json(const Service& service);
/// POST /lora-adapters: sets the scales of requests that bring none.
[[nodiscard]] Json set_adapters(const Json& body, const Service& service);

}  // namespace server
