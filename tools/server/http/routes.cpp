// The endpoints: which path is answered by what.
#include <httplib.h>

#include "api/adapters.h"
#include "api/chat_request.h"
#include "api/pieces.h"
#include "api/utilities.h"
#include "ggml/log.h"
#include "http/answering.h"
#include "http/connection.h"
#include "http/connection_server.h"
#include "http/http_server.h"
#include "http/reply.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using httplib::Request;
using httplib::Response;
using ServicePtr = std::shared_ptr<Service>;

void HttpServer::answer(CompletionRequest completion, Answering::MakeFormat format, const Request& request,
                        Response& response, const ServicePtr& service) {
  auto answering = std::make_shared<Answering>(std::move(completion), format, service);
  // A client that has finished sending may have left, or may wait for the answer: an interim answer, which clients
  // skip, finds that out. HTTP/1.0 knows none.
  const auto client_left = [&request, &connection = Connection::current()] {
    if (connection.hung_up()) return true;
    if (!connection.wants_probe()) return false;
    return request.version != "HTTP/1.1" || connection.write(std::string("HTTP/1.1 100 Continue\r\n\r\n")) < 0;
  };
  try {
    if (!answering->options().stream) {
      send(response, answering->whole(client_left));
      return;
    }
    answering->await_start(client_left);
  } catch (const Answering::Failed& failed) {
    send(response, failed.error);
    return;
  }
  response.set_header("X-Accel-Buffering", "no");
  auto write_events = [answering, &connection = Connection::current()](std::size_t, httplib::DataSink& sink) {
    bool ended = false;
    std::string events = answering->next_events(ended);
    if (events.empty() && connection.hung_up()) return false;
    if (events.empty() && connection.wants_probe()) events = ":\n\n";
    // Returning false closes the connection; the Answering then cancels what is still running.
    if (!events.empty() && !sink.write(events.data(), events.size())) return false;
    if (ended) sink.done();
    return true;
  };
  const auto at_end = [&connection = Connection::current(), timeout_s = settings_.server.timeout_s](bool) {
    if (!connection.write_timed_out()) return;
    ggml::logf(ggml::LogLevel::warn, "a client has not read its stream for %d s (--timeout): it is given up",
               timeout_s);
  };
  if (request.version == "HTTP/1.0") {  // knows no chunks: the end of the connection is the end of the stream
    response.set_content_provider("text/event-stream", std::move(write_events), at_end);
  } else {
    response.set_chunked_content_provider("text/event-stream", std::move(write_events), at_end);
  }
}

void HttpServer::add_routes() {
  const auto get = [this](const char* path, Handler handler) { route("GET", path, handler); };
  const auto post = [this](const char* path, Handler handler) { route("POST", path, handler); };
  const auto post_body = [this](const char* path, Handler handler) { route("POST", path, handler, true); };
  for (const char* path : {"/health", "/v1/health"}) get(path, &HttpServer::health);
  for (const char* path : {"/models", "/v1/models"}) get(path, &HttpServer::models);
  get("/api/tags", &HttpServer::model_tags);
  get("/props", &HttpServer::props);
  post("/props", &HttpServer::change_props);
  get("/slots", &HttpServer::slots);
  post("/slots/:id", &HttpServer::slot_action);
  get("/metrics", &HttpServer::metrics);
  post_body("/tokenize", &HttpServer::tokenize);
  post_body("/detokenize", &HttpServer::detokenize);
  post_body("/apply-template", &HttpServer::apply_template);
  for (const char* path : {"/completion", "/completions"}) post_body(path, &HttpServer::native_completion);
  post_body("/v1/completions", &HttpServer::text_completion);
  for (const char* path : {"/chat/completions", "/v1/chat/completions", "/api/chat"})
    post_body(path, &HttpServer::chat_completion);
  for (const char* path : {"/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"})
    post_body(path, &HttpServer::count_tokens);
  for (const char* path : {"/cors-proxy", "/tools"}) {
    get(path, &HttpServer::disabled);
    post(path, &HttpServer::disabled);
  }
  for (const char* path : {"/embedding", "/embeddings", "/v1/embeddings", "/rerank", "/reranking", "/v1/rerank",
                           "/v1/reranking", "/infill", "/v1/messages", "/v1/messages/count_tokens", "/responses",
                           "/v1/responses", "/responses/input_tokens", "/v1/responses/input_tokens",
                           "/v1/chat/completions/control", "/audio/transcriptions", "/v1/audio/transcriptions"}) {
    post(path, &HttpServer::not_available);
  }
  get("/lora-adapters", &HttpServer::adapters);
  post_body("/lora-adapters", &HttpServer::change_adapters);
  if (settings_.server.web_page) {
    routes_.push_back({settings_.server.api_prefix + "/", "GET"});
    http_->Get(settings_.server.api_prefix + "/", [this](const Request&, Response& response) {
      response.set_content(web_page(service().get(), curl_command()), "text/html; charset=utf-8");
    });
  }
  if (!settings_.server.static_path.empty() &&
      !http_->set_mount_point(settings_.server.api_prefix + "/", settings_.server.static_path)) {
    throw Error(ErrorCode::not_found, "--path: " + settings_.server.static_path + " is not a folder");
  }
}

void HttpServer::health(const Request&, Response& response, const ServicePtr& service) {
  // Who balances load shall send no more here.
  if (service->engine.stopping()) throw Error(ErrorCode::unavailable, "the server is shutting down");
  send(response, {{"status", "ok"}});
}

void HttpServer::models(const Request&, Response& response, const ServicePtr& service) {
  send(response, models_json(*service));
}

void HttpServer::model_tags(const Request&, Response& response, const ServicePtr& service) {
  send(response, {{"models", models_json(*service)["models"]}});
}

void HttpServer::props(const Request&, Response& response, const ServicePtr& service) {
  send(response, props_json(*service));
}

void HttpServer::change_props(const Request&, Response& response, const ServicePtr&) {
  if (!settings_.server.props)
    throw Error(ErrorCode::unsupported, "POST /props is switched off", "start the server with --props");
  send(response, {{"success", true}});
}

void HttpServer::slots(const Request& request, Response& response, const ServicePtr& service) {
  if (!settings_.server.slots)
    throw Error(ErrorCode::unsupported, "GET /slots is switched off", "start the server with --slots");
  const EngineStatus status = service->engine.status();
  if (request.get_param_value("fail_on_no_slot") == "1") {
    const bool idle =
        std::any_of(status.slots.begin(), status.slots.end(), [](const SlotStatus& s) { return !s.processing; });
    if (!idle) throw Error(ErrorCode::unavailable, "no slot is idle");
  }
  send(response, slots_json(*service, status));
}

void HttpServer::slot_action(const Request& request, Response& response, const ServicePtr& service) {
  const std::string& id = request.path_params.at("id");
  const int n_slots = service->engine.params().n_slots;
  const bool number = !id.empty() && id.size() < 6 && id.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoi(id) >= n_slots) {
    throw Error(ErrorCode::invalid_argument,
                strf("slot '%s' does not exist, the server has the slots 0 to %d", id.c_str(), n_slots - 1));
  }
  const std::string action = request.get_param_value("action");
  if (action == "save" || action == "restore") {
    throw Error(ErrorCode::unsupported, "saving and restoring slots is not available in this version");
  }
  if (action != "erase")
    throw Error(ErrorCode::invalid_argument, "action '" + action + "' is not one of save, restore, erase");
  send(response, {{"id_slot", std::stoi(id)}, {"n_erased", service->engine.erase_slot(std::stoi(id))}});
}

void HttpServer::metrics(const Request&, Response& response, const ServicePtr& service) {
  if (!settings_.server.metrics)
    throw Error(ErrorCode::unsupported, "GET /metrics is switched off", "start the server with --metrics");
  response.set_header("Process-Start-Time-Unix", std::to_string(started_unix_s_));
  response.set_content(metrics_text(service->engine.status()), "text/plain; version=0.0.4");
}

void HttpServer::adapters(const Request&, Response& response, const ServicePtr& service) {
  send(response, adapters_json(*service));
}

void HttpServer::change_adapters(const Request& request, Response& response, const ServicePtr& service) {
  send(response, set_adapters(parse_body(request.body).json(), *service));
}

void HttpServer::tokenize(const Request& request, Response& response, const ServicePtr& service) {
  const Body body = parse_body(request.body);
  send_text(response, tokenize_answer(Fields(body), *service));
}

void HttpServer::detokenize(const Request& request, Response& response, const ServicePtr& service) {
  const Body body = parse_body(request.body);
  send(response, detokenize_json(Fields(body), *service));
}

void HttpServer::apply_template(const Request& request, Response& response, const ServicePtr& service) {
  const Body body = parse_body(request.body);
  send(response, {{"prompt", apply_chat_template(Fields(body), *service)}});
}

void HttpServer::count_tokens(const Request& request, Response& response, const ServicePtr& service) {
  const Body body = parse_body(request.body);
  const std::string prompt = apply_chat_template(Fields(body), *service);
  const std::size_t n = service->vocab().tokenize(prompt, {.add_special = true, .parse_special = true}).size();
  send(response, {{"object", "response.input_tokens"}, {"input_tokens", n}});
}

void HttpServer::native_completion(const Request& request, Response& response, const ServicePtr& service) {
  const Body body = parse_body(request.body);
  const Fields fields(body);
  CompletionRequest completion = read_completion_fields(fields, *service);
  check_text_fields(fields);
  set_prompts(completion, read_prompts(fields, "prompt", *service));
  answer(std::move(completion), native_format, request, response, service);
}

void HttpServer::text_completion(const Request& request, Response& response, const ServicePtr& service) {
  const Body body = parse_body(request.body);
  const Fields fields(body);
  CompletionRequest completion = read_completion_fields(fields, *service);
  check_openai_text_fields(fields, completion);
  set_prompts(completion, read_prompts(fields, "prompt", *service));
  answer(std::move(completion), text_completion_format, request, response, service);
}

void HttpServer::chat_completion(const Request& request, Response& response, const ServicePtr& service) {
  const Body body = parse_body(request.body);
  ChatRequest chat = read_chat_request(Fields(body), *service);
  answer(std::move(chat.completion), chat_completion_format, request, response, service);
}

void HttpServer::disabled(const Request&, Response& response, const ServicePtr&) {
  send(response, http_error(403, "feature_disabled", "this feature is disabled"));
}

void HttpServer::not_available(const Request& request, Response&, const ServicePtr&) {
  throw Error(ErrorCode::unsupported, request.path + " is not available in this version");
}

}  // namespace server
