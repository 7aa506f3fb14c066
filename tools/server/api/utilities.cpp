#include "api/utilities.h"

#include <filesystem>

#include "api/completion_request.h"
#include "api/pieces.h"
#include "common/markup.h"
#include "ggml/log.h"
#include "llama/utf8.h"

namespace server {

using ggml::strf;

Json models_json(const Service& service) {
  const llama::ModelInfo& info = service.model.info();
  const std::vector<std::string>& aliases = service.settings.server.aliases;
  const Json listed = {{"name", service.name},
                       {"model", service.name},
                       {"modified_at", ""},
                       {"size", ""},
                       {"digest", ""},
                       {"type", "model"},
                       {"description", ""},
                       {"tags", Json::array({""})},
                       {"capabilities", Json::array({"completion"})},
                       {"parameters", ""},
                       {"details",
                        {{"parent_model", ""},
                         {"format", "gguf"},
                         {"family", ""},
                         {"families", Json::array({""})},
                         {"parameter_size", ""},
                         {"quantization_level", ""}}}};
  const Json entry = {{"id", service.name},
                      {"aliases", aliases},
                      {"tags", service.settings.server.tags},
                      {"object", "model"},
                      {"created", service.started_unix_s},
                      {"owned_by", "llamacpp"},
                      {"meta",
                       {{"vocab_type", static_cast<int>(service.vocab().kind())},
                        {"n_vocab", info.n_vocab},
                        {"n_ctx", service.engine.params().n_ctx_slot},
                        {"n_ctx_train", info.n_ctx_train},
                        {"n_embd", info.n_embd},
                        {"n_params", info.n_params},
                        {"size", info.file_bytes},
                        {"ftype", info.file_type}}}};
  return {{"models", Json::array({listed})}, {"object", "list"}, {"data", Json::array({entry})}};
}

Json props_json(const Service& service) {
  const llama::Vocab& vocab = service.vocab();
  const auto text_of = [&](Token token) {
    return token == llama::kNoToken ? std::string() : std::string(vocab.piece(token, llama::SpecialText::show));
  };
  GenerateRequest defaults;
  defaults.sampling = service.sampling;
  defaults.n_predict = service.settings.prompt.n_predict;
  defaults.adapter_scales = service.engine.adapter_scales();
  const common::ServerSettings& server = service.settings.server;
  const common::chat::ChatTemplateCaps& caps = service.chat.caps();
  Json json = {{"default_generation_settings",
                {{"params", generation_settings_json(defaults, {}, service.sampling.seed, service, false)},
                 {"n_ctx", service.engine.params().n_ctx_slot}}},
               {"total_slots", service.engine.params().n_slots},
               {"model_alias", service.name},
               {"model_ftype", service.model.info().file_type},
               {"model_path", service.settings.model.path},
               {"modalities", {{"vision", false}, {"video", false}, {"audio", false}}},
               {"media_marker", "<__media__>"},
               {"endpoint_slots", server.slots},
               {"endpoint_props", server.props},
               {"endpoint_metrics", server.metrics},
               {"ui", server.web_page},
               {"ui_settings", Json::object()},
               {"chat_template", service.chat.source()},
               {"chat_template_caps",
                {{"supports_string_content", caps.string_content},
                 {"supports_typed_content", caps.typed_content},
                 {"supports_system_role", caps.system_role},
                 {"supports_tools", caps.tools},
                 {"supports_tool_calls", caps.tool_calls},
                 {"supports_parallel_tool_calls", caps.parallel_tool_calls},
                 {"supports_object_arguments", caps.object_arguments},
                 {"supports_preserve_reasoning", caps.preserve_reasoning}}},
               {"bos_token", text_of(vocab.special().bos)},
               {"eos_token", text_of(vocab.special().eos)},
               {"build_info", service.build},
               {"is_sleeping", false},
               {"cors_proxy_enabled", false}};
  if (service.chat.source(true) != service.chat.source(false))
    json["chat_template_tool_use"] = service.chat.source(true);
  return json;
}

Json slots_json(const Service& service, const EngineStatus& status) {
  Json slots = Json::array();
  for (const SlotStatus& slot : status.slots) {
    Json json = {{"id", slot.id},
                 {"n_ctx", service.engine.params().n_ctx_slot},
                 {"speculative", false},
                 {"is_processing", slot.processing}};
    if (slot.ever_used) {
      json["id_task"] = slot.task;
      json["n_prompt_tokens"] = slot.n_prompt;
      json["n_prompt_tokens_processed"] = slot.n_prompt_processed;
      json["n_prompt_tokens_cache"] = slot.n_prompt_cache;
      json["params"] = generation_settings_json(slot.request, {}, slot.request.sampling.seed, service, false);
      json["next_token"] = Json::array({{{"has_next_token", slot.processing},
                                         {"has_new_line", slot.has_new_line},
                                         {"n_remain", slot.n_remain},
                                         {"n_decoded", slot.n_decoded}}});
    }
    slots.push_back(std::move(json));
  }
  return slots;
}

namespace {

/// What crossed the links between host memory and each device: a line per device and direction.
std::string link_metrics(const EngineStatus& status) {
  struct Row {
    const char* name;
    const char* help;
    std::uint64_t ggml::LinkUse::*in;
    std::uint64_t ggml::LinkUse::*out;
  };
  constexpr Row kLinkRows[] = {
      {"link_bytes_total", "Bytes copied to and from a device.", &ggml::LinkUse::bytes_in, &ggml::LinkUse::bytes_out},
      {"link_copies_total", "Copies to and from a device.", &ggml::LinkUse::copies_in, &ggml::LinkUse::copies_out}};
  std::string out;
  for (const Row& row : kLinkRows) {
    if (status.devices.size() < 2) break;  // the first one is the host
    out += strf("# HELP llamacpp:%s %s\n# TYPE llamacpp:%s counter\n", row.name, row.help, row.name);
    for (std::size_t d = 1; d < status.devices.size() && d < status.scheduler.links.size(); ++d) {
      const ggml::LinkUse& link = status.scheduler.links[d];
      for (const auto& [direction, field] : {std::pair{"in", row.in}, std::pair{"out", row.out}})
        out += strf("llamacpp:%s{device=\"%s\",direction=\"%s\"} %llu\n", row.name, status.devices[d].c_str(),
                    direction, static_cast<unsigned long long>(link.*field));
    }
  }
  if (status.devices.size() < 2) return out;
  out +=
      "# HELP llamacpp:link_weight_bytes_total Bytes of weights in host memory sent to a device for prompts.\n"
      "# TYPE llamacpp:link_weight_bytes_total counter\n";
  for (std::size_t d = 1; d < status.devices.size() && d < status.scheduler.links.size(); ++d)
    out += strf("llamacpp:link_weight_bytes_total{device=\"%s\"} %llu\n", status.devices[d].c_str(),
                static_cast<unsigned long long>(status.scheduler.links[d].weight_bytes));
  return out;
}

}  // namespace

std::string metrics_text(const EngineStatus& status) {
  const Metrics& m = status.metrics;
  std::string out;
  const auto add = [&](const char* kind, const char* name, const char* help, double value) {
    out +=
        strf("# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %.12g\n", name, help, name, kind, name, value);
  };
  const auto rate = [](double n, double ms) { return ms > 0 ? 1000.0 * n / ms : 0.0; };
  const auto seconds = [](double ms) { return static_cast<double>(static_cast<std::uint64_t>(ms)) / 1000.0; };
  const auto prompt = static_cast<double>(m.prompt_tokens);
  const auto predicted = static_cast<double>(m.predicted_tokens);
  int processing = 0;
  for (const SlotStatus& slot : status.slots) processing += slot.processing ? 1 : 0;

  add("counter", "prompt_tokens_total", "Prompt tokens evaluated.", prompt);
  add("counter", "prompt_seconds_total", "Time spent on prompts, in seconds.", seconds(m.prompt_ms));
  add("counter", "tokens_predicted_total", "Tokens generated.", predicted);
  add("counter", "tokens_predicted_seconds_total", "Time spent on generation, in seconds.", seconds(m.predicted_ms));
  add("counter", "n_decode_total", "Steps computed.", static_cast<double>(m.n_decode));
  add("counter", "n_tokens_max", "The most tokens that a slot has held.", static_cast<double>(m.n_tokens_max));
  add("counter", "spec_decode_num_draft_tokens_total", "Draft tokens proposed.", 0);
  add("counter", "spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", 0);
  add("counter", "spec_decode_num_drafts_total", "Drafts made.", 0);
  add("counter", "splits_total", "Pieces of step graphs run, each on one device.",
      static_cast<double>(status.scheduler.splits));
  out += link_metrics(status);
  add("gauge", "prompt_tokens_seconds", "Mean prompt tokens per second since the start.", rate(prompt, m.prompt_ms));
  add("gauge", "predicted_tokens_seconds", "Mean generated tokens per second since the start.",
      rate(predicted, m.predicted_ms));
  add("gauge", "requests_processing", "Requests in a slot.", processing);
  add("gauge", "requests_deferred", "Requests waiting for a slot.", status.n_deferred);
  add("gauge", "n_busy_slots_per_decode", "Mean number of slots with work per step.",
      m.n_decode > 0 ? static_cast<double>(m.n_busy_slots) / static_cast<double>(m.n_decode) : 0.0);
  add("gauge", "n_decode_rows_per_decode", "Mean number of decoding rows per step.",
      m.n_decode > 0 ? static_cast<double>(m.n_decode_rows) / static_cast<double>(m.n_decode) : 0.0);
  add("gauge", "kv_cache_usage_ratio", "Share of the KV blocks in use.", status.kv_usage);
  add("gauge", "kv_cache_tokens", "Tokens in the KV cache.", status.kv_tokens);
  add("gauge", "graph_builds", "Step graphs built and compiled since the start.",
      static_cast<double>(status.graph_builds));
  return out;
}

namespace {

/// {"id": 5, "piece": "text"}, or the piece's bytes where they are no UTF-8.
void append_piece(Token token, const llama::Vocab& vocab, std::string& out) {
  const std::string_view piece = vocab.piece(token, llama::SpecialText::show);
  out.append("{\"id\":").append(std::to_string(token)).append(",\"piece\":");
  if (llama::is_valid_utf8(piece)) {
    out += dump(std::string(piece));
  } else {
    char before = '[';
    for (const char c : piece) {
      out.append(1, before).append(std::to_string(static_cast<unsigned char>(c)));
      before = ',';
    }
    out += ']';
  }
  out += '}';
}

}  // namespace

std::string tokenize_answer(const Fields& fields, const Service& service) {
  llama::TokenizeOptions options{.add_special = false, .parse_special = true};
  fields.read("add_special", options.add_special);
  fields.read("parse_special", options.parse_special);
  bool with_pieces = false;
  fields.read("with_pieces", with_pieces);
  std::string out = "{\"tokens\":[";
  if (const Json* content = fields.find("content")) {
    for (const Token token : tokenize_mixed("content", *content, service.vocab(), options)) {
      if (out.back() != '[') out += ',';
      if (with_pieces) {
        append_piece(token, service.vocab(), out);
      } else {
        out += std::to_string(token);
      }
    }
  }
  return out + "]}";
}

Json detokenize_json(const Fields& fields, const Service& service) {
  const Json* ids = fields.find("tokens");
  if (ids == nullptr) return {{"content", ""}};
  if (!ids->is_array()) bad_field("tokens", "an array of token ids", *ids);
  std::vector<Token> tokens;
  for (const Json& id : *ids) {
    const bool inside =
        id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() < service.vocab().n_tokens();
    if (!inside) bad_field("tokens", strf("token ids from 0 to %d", service.vocab().n_tokens() - 1), id);
    tokens.push_back(static_cast<Token>(id.get<std::int64_t>()));
  }
  return {{"content", service.vocab().pieces(tokens, llama::SpecialText::show)}};
}

std::string web_page(const Service* service, const std::string& curl) {
  std::string page =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tandem</title>"
      "<meta name=\"viewport\" content=\"width=device-width\">"
      "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem}"
      "pre{background:#f3f3f3;padding:1rem;overflow:auto}td{padding:.1rem 1rem .1rem 0}</style><h1>Tandem</h1>";
  if (service == nullptr) return page + "<p>The model is being loaded.</p></html>\n";
  const EngineStatus status = service->engine.status();
  int busy = 0;
  for (const SlotStatus& slot : status.slots) busy += slot.processing ? 1 : 0;
  const llama::ModelInfo& info = service->model.info();
  const auto row = [&](const std::string& name, const std::string& value) {
    page += "<tr><td>" + common::escape_markup(name) + "</td><td>" + common::escape_markup(value) + "</td></tr>";
  };
  page += "<table>";
  row("Model", service->name);
  row("Architecture", info.architecture + ", " + info.file_type);
  row("Context",
      strf("%d tokens in each of %d slots", service->engine.params().n_ctx_slot, service->engine.params().n_slots));
  row("State", strf("%d slots busy, %d requests waiting", busy, status.n_deferred));
  page += "</table><p>Try it:</p><pre>";
  page +=
      common::escape_markup(curl +
                            "/v1/chat/completions -H 'Content-Type: application/json' \\\n"
                            "  -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of France? "
                            "Answer in one sentence.\"}], \"temperature\": 0}'");
  return page + "</pre></html>\n";
}

}  // namespace server
