#include "api/adapters.h"

#include <cmath>
#include <string>

#include "ggml/log.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

std::string known_ids(std::size_t n_adapters) {
  if (n_adapters == 0) return "the server was started without any";
  if (n_adapters == 1) return "the server has one, with the id 0";
  return strf("the server has %zu, with the ids 0 to %zu", n_adapters, n_adapters - 1);
}

}  // namespace

std::vector<float> read_adapter_scales(std::string_view field, const Json& list, std::size_t n_adapters) {
  if (!list.is_array()) bad_field(field, "an array of {\"id\": number, \"scale\": number}", list);
  std::vector<float> scales(n_adapters, 0.0f);
  std::vector<bool> listed(n_adapters, false);
  for (const Json& entry : list) {
    if (!entry.is_object()) bad_field(field, "objects {\"id\": number, \"scale\": number}", entry);
    const auto id = entry.find("id");
    const auto scale = entry.find("scale");
    if (id == entry.end() || !id->is_number_integer() || scale == entry.end() || !scale->is_number())
      bad_field(field, "objects {\"id\": number, \"scale\": number}", entry);
    const bool known = id->is_number_unsigned() ? id->get<std::uint64_t>() < n_adapters : false;
    if (!known)
      throw Error(
          ErrorCode::invalid_argument,
          strf("Field '%s[%td].id': there is no adapter %s; %s", field == "body" ? "" : std::string(field).c_str(),
               &entry - &list.front(), id->dump().c_str(), known_ids(n_adapters).c_str()),
          n_adapters == 0 ? "start it with --lora FILE" : "GET /lora-adapters lists them");
    const auto index = id->get<std::size_t>();
    if (listed[index])
      throw Error(ErrorCode::invalid_argument, strf("Field '%.*s': adapter %zu is listed twice",
                                                    static_cast<int>(field.size()), field.data(), index));
    listed[index] = true;
    scales[index] = static_cast<float>(scale->get<double>());
    if (!std::isfinite(scales[index])) bad_field(field, "scales that are finite numbers", *scale);
  }
  return scales;
}

Json scales_json(std::span<const float> scales) {
  Json list = Json::array();
  for (std::size_t i = 0; i < scales.size(); ++i) list.push_back({{"id", i}, {"scale", scales[i]}});
  return list;
}

Json adapters_json(const Service& service) {
  Json list = Json::array();
  const std::vector<float> scales = service.engine.adapter_scales();
  const std::vector<llama::AdapterInfo>& adapters = service.model.adapters();
  for (std::size_t i = 0; i < adapters.size(); ++i)
    list.push_back({{"id", i},
                    {"path", adapters[i].path},
                    {"scale", scales[i]},
                    {"task_name", adapters[i].task_name},
                    {"prompt_prefix", adapters[i].prompt_prefix}});
  return list;
}

Json set_adapters(const Json& body, const Service& service) {
  service.engine.set_adapter_scales(read_adapter_scales("body", body, service.model.adapters().size()));
  return {{"success", true}};
}

}  // namespace server
