// llama-server: the socket, the routes, the slots.
#include <algorithm>
#include <sstream>

#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kServerGroup = "Server";
constexpr std::string_view kSlots = "Slots and prompt caches";
constexpr std::string_view kRouter = "router mode";
constexpr std::string_view kRouterAdvice = "give -m MODEL";
constexpr std::string_view kEmbeddings = "embeddings";
constexpr std::string_view kTools = "built-in tools";
constexpr std::string_view kLeaveOut = "leave it out";
constexpr std::string_view kPreset = "download presets";
constexpr std::string_view kPresetAdvice = "give -m MODEL";

void apply_key_file(Target& target, const Argument& argument) {
  std::istringstream lines(read_file(argument, argument.value()));
  const std::size_t before = target.settings.server.api_keys.size();
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) target.settings.server.api_keys.push_back(line);
  }
  // Without a key the server would be open to all.
  if (target.settings.server.api_keys.size() == before)
    bad_value(argument, "a file with one key a line, not an empty one");
}

void apply_api_keys(Target& target, const Argument& argument) {
  for (std::string& key : split_list(argument.value())) {
    if (key.empty()) bad_value(argument, "a key that is not empty");
    target.settings.server.api_keys.push_back(std::move(key));
  }
}

/// ik_llama.cpp's --webui takes a word, llama.cpp's does not.
void apply_web_page(Target& target, const Argument& argument) {
  target.settings.server.web_page = argument.bare() ? !argument.negative : argument.value() != "none";
}

void apply_host(Target& target, const Argument& argument) {
  // The system takes an empty name for every address of the machine: an unset variable must not open it to the network.
  if (argument.value().empty()) bad_value(argument, "an address (0.0.0.0 listens on all)");
  target.settings.server.host = argument.value();
}

void apply_api_prefix(Target& target, const Argument& argument) {
  std::string prefix = argument.value();
  while (prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.empty() && !prefix.starts_with('/')) bad_value(argument, "a path that begins with /");
  target.settings.server.api_prefix = std::move(prefix);
}

void apply_aliases(Target& target, const Argument& argument) {
  target.settings.server.aliases.clear();
  for (std::string& alias : split_list(argument.value()))
    if (!alias.empty()) target.settings.server.aliases.push_back(std::move(alias));
  std::sort(target.settings.server.aliases.begin(), target.settings.server.aliases.end());  // the first is the name
}

const std::vector<Option> kSocketRows = {
    option({"--host"}, "HOST", "Address to listen on; a name that ends in .sock is a Unix socket.", apply_host)
        .variable("LLAMA_ARG_HOST")
        .initially("127.0.0.1"),
    option({"--port"}, "N", "Port to listen on; 0: any free one, which the log names.",
           whole(
               [](Settings& s) -> auto& { return s.server.port; }, 0, 65535))
        .variable("LLAMA_ARG_PORT")
        .initially("8080"),
    option({"--reuse-port"}, "", "Let several processes listen on the port (SO_REUSEPORT).",
           toggle([](Settings& s) -> auto& { return s.server.reuse_port; }))
        .variable("LLAMA_ARG_REUSE_PORT")
        .initially("off"),
    option({"-a", "--alias"}, "NAME,...", "Names of the model in answers.", apply_aliases)
        .variable("LLAMA_ARG_ALIAS")
        .variable("LLAMA_ARG_MODEL_ALIAS")
        .initially("file name"),
    option({"--tags"}, "TAG,...", "Tags shown by /v1/models.",
           items([](Settings& s) -> auto& { return s.server.tags; }))
        .variable("LLAMA_ARG_TAGS")
        .list(),
    option({"--api-key"}, "KEY,...", "Keys that clients may use; repeatable.", apply_api_keys)
        .variable("LLAMA_API_KEY")
        .list(),
    option({"--api-key-file"}, "FNAME", "File with one key a line.", apply_key_file)
        .variable("LLAMA_ARG_API_KEY_FILE")
        .list(),
    option({"--ssl-key-file"}, "FNAME", "TLS key.")
        .variable("LLAMA_ARG_SSL_KEY_FILE")
        .refused("TLS", "put a reverse proxy in front"),
    option({"--ssl-cert-file"}, "FNAME", "TLS certificate.")
        .variable("LLAMA_ARG_SSL_CERT_FILE")
        .refused("TLS", "put a reverse proxy in front"),
    option({"-to", "--timeout"}, "N", "Read and write timeout of a connection in seconds.",
           whole(
               [](Settings& s) -> auto& { return s.server.timeout_s; }, 1))
        .variable("LLAMA_ARG_TIMEOUT")
        .initially("3600"),
    option({"--sse-ping-interval"}, "N", "Seconds between keep-alive comments on streams; -1: none.",
           whole(
               [](Settings& s) -> auto& { return s.server.sse_ping_interval_s; }, -1))
        .variable("LLAMA_ARG_SSE_PING_INTERVAL")
        .initially("30"),
    option({"--threads-http"}, "N", "Threads kept for connections; more are started while they are needed.",
           whole(
               [](Settings& s) -> auto& { return s.server.threads_http; }, -1, 65536))
        .variable("LLAMA_ARG_THREADS_HTTP")
        .initially("-1: the larger of slots + 4 and CPUs - 1"),
    option({"--api-prefix"}, "PREFIX", "Path in front of every route.", apply_api_prefix)
        .variable("LLAMA_ARG_API_PREFIX"),
    option({"--path"}, "DIR", "Folder of static files served at /.",
           text([](Settings& s) -> auto& { return s.server.static_path; }))
        .variable("LLAMA_ARG_STATIC_PATH"),
    option({"--webui", "--ui"}, "", "Serve the page at /.", apply_web_page)
        .negative({"--no-ui", "--no-webui"})
        .words({"none", "auto", "llamacpp"})
        .variable("LLAMA_ARG_UI")
        .initially("on"),
    option({"--cors-origins"}, "LIST", "CORS: allowed origins.",
           text([](Settings& s) -> auto& { return s.server.cors_origins; }))
        .variable("LLAMA_ARG_CORS_ORIGINS")
        .initially("*"),
    option({"--cors-methods"}, "LIST", "CORS: allowed methods.",
           text([](Settings& s) -> auto& { return s.server.cors_methods; }))
        .variable("LLAMA_ARG_CORS_METHODS")
        .initially("GET, POST, DELETE, OPTIONS"),
    option({"--cors-headers"}, "LIST", "CORS: allowed headers.",
           text([](Settings& s) -> auto& { return s.server.cors_headers; }))
        .variable("LLAMA_ARG_CORS_HEADERS")
        .initially("*"),
    option({"--cors-credentials"}, "", "CORS: allow credentials.",
           toggle([](Settings& s) -> auto& { return s.server.cors_credentials; }))
        .negative({"--no-cors-credentials"})
        .variable("LLAMA_ARG_CORS_CREDENTIALS")
        .initially("on"),
    option({"--metrics"}, "", "Serve /metrics.", toggle([](Settings& s) -> auto& { return s.server.metrics; }))
        .variable("LLAMA_ARG_ENDPOINT_METRICS")
        .initially("off"),
    option({"--props"}, "", "Allow POST /props.", toggle([](Settings& s) -> auto& { return s.server.props; }))
        .variable("LLAMA_ARG_ENDPOINT_PROPS")
        .initially("off"),
    option({"--slots"}, "", "Serve /slots.", toggle([](Settings& s) -> auto& { return s.server.slots; }))
        .negative({"--no-slots"})
        .variable("LLAMA_ARG_ENDPOINT_SLOTS")
        .initially("on"),
    option({"--webui-config", "--ui-config"}, "JSON", "Settings of the page.")
        .variable("LLAMA_ARG_UI_CONFIG")
        .no_effect("the page has no settings"),
    option({"--webui-config-file", "--ui-config-file"}, "FNAME", "Settings of the page.")
        .variable("LLAMA_ARG_UI_CONFIG_FILE")
        .no_effect("the page has no settings"),
    option({"--webui-mcp-proxy", "--ui-mcp-proxy"}, "", "MCP proxy of the page.")
        .negative({"--no-ui-mcp-proxy", "--no-webui-mcp-proxy"})
        .variable("LLAMA_ARG_UI_MCP_PROXY")
        .no_effect("the page has no such proxy"),
    option({"--media-path"}, "DIR", "Folder of media files.").no_effect("there is no multimodal input"),
    option({"--send-done"}, "", "End streams with [DONE].")
        .no_effect("streams always end with it where the API has it"),
    option({"--sql-save-file"}, "FNAME", "Database of saved chats.").no_effect("chats are not saved"),
    option({"--sqlite-zstd-ext-file"}, "FNAME", "Extension of that database.").no_effect("chats are not saved"),
    option({"--tools"}, "LIST", "Built-in tools.").variable("LLAMA_ARG_TOOLS").refused(kTools, kLeaveOut),
    option({"--mcp-servers-config"}, "FNAME", "MCP servers.")
        .variable("LLAMA_ARG_MCP_SERVERS_CONFIG")
        .refused("MCP servers", kLeaveOut),
    option({"--mcp-servers-json"}, "JSON", "MCP servers.")
        .variable("LLAMA_ARG_MCP_SERVERS_JSON")
        .refused("MCP servers", kLeaveOut),
    option({"-ag", "--agent"}, "", "Built-in agent.")
        .negative({"-no-ag", "--no-agent"})
        .variable("LLAMA_ARG_AGENT")
        .refused("the built-in agent", kLeaveOut),
    option({"--models-dir"}, "DIR", "Models of the router.")
        .variable("LLAMA_ARG_MODELS_DIR")
        .refused(kRouter, kRouterAdvice),
    option({"--models-preset"}, "FNAME", "Presets of the router.")
        .variable("LLAMA_ARG_MODELS_PRESET")
        .refused(kRouter, kRouterAdvice),
    option({"--models-max"}, "N", "Models that the router keeps.")
        .variable("LLAMA_ARG_MODELS_MAX")
        .refused(kRouter, kRouterAdvice),
    option({"--models-autoload"}, "", "Let the router load models by itself.")
        .negative({"--no-models-autoload"})
        .variable("LLAMA_ARG_MODELS_AUTOLOAD")
        .refused(kRouter, kRouterAdvice),
    option({"--sleep-idle-seconds"}, "N", "Unload the model after N idle seconds; -1: never.")
        .no_effect("the model stays loaded")
        .unless({"-1"})
        .initially("-1"),
    option({"--embeddings", "--embedding"}, "", "Serve embeddings only.")
        .variable("LLAMA_ARG_EMBEDDINGS")
        .refused(kEmbeddings, kLeaveOut),
    option({"--reranking", "--rerank"}, "", "Serve /rerank.")
        .variable("LLAMA_ARG_RERANKING")
        .refused(kEmbeddings, kLeaveOut),
    option({"--embd-normalize"}, "N", "Normalisation of embeddings.").no_effect("there are no embeddings"),
};

const std::vector<Option> kSlotRows = {
    option({"-cb", "--cont-batching"}, "", "Put prompts and answers of several slots into one step.",
           toggle([](Settings& s) -> auto& { return s.server.continuous_batching; }))
        .negative({"-nocb", "--no-cont-batching"})
        .variable("LLAMA_ARG_CONT_BATCHING")
        .initially("on"),
    option({"-sps", "--slot-prompt-similarity"}, "F",
           "Smallest share of a prompt that must agree with a slot's for that slot to be chosen; 0: off.",
           real(
               [](Settings& s) -> auto& { return s.server.slot_similarity; }, 0, 1))
        .initially("0.1"),
    option({"--cache-prompt"}, "", "Reuse the common beginning of prompts, unless a request says otherwise.",
           toggle([](Settings& s) -> auto& { return s.server.cache_prompt; }))
        .negative({"--no-cache-prompt"})
        .variable("LLAMA_ARG_CACHE_PROMPT")
        .initially("on"),
    option({"--cache-reuse"}, "N", "Smallest chunk that is reused by shifting; 0: off.")
        .variable("LLAMA_ARG_CACHE_REUSE")
        .no_effect("prompts are reused from their beginning on")
        .unless({"0"})
        .initially("0"),
    option({"-cram", "--cache-ram"}, "N", "MiB of host memory for prompts of finished slots; 0: off.")
        .variable("LLAMA_ARG_CACHE_RAM")
        .used_by(kGenerators)
        .no_effect("there is no host prompt cache; idle slots keep their prompt in the KV cache")
        .unless({"0"})
        .initially("0"),
    option({"-crs", "--cache-ram-similarity"}, "F", "When a prompt is saved there.")
        .no_effect("there is no host prompt cache"),
    option({"-cram-n-min", "--cache-ram-n-min"}, "N", "Smallest prompt saved there.")
        .no_effect("there is no host prompt cache"),
    option({"--cache-idle-slots"}, "", "Move idle slots there.")
        .negative({"--no-cache-idle-slots"})
        .variable("LLAMA_ARG_CACHE_IDLE_SLOTS")
        .no_effect("there is no host prompt cache"),
    option({"-ctxcp", "--swa-checkpoints", "-ctx-ckpt", "--ctx-checkpoints"}, "N",
           "Checkpoints of recurrent layers per slot, to which a prompt can go back; 0: off.",
           whole(
               [](Settings& s) -> auto& { return s.context.n_checkpoints; }, 0, 1024))
        .variable("LLAMA_ARG_CTX_CHECKPOINTS")
        .used_by(kGenerators)
        .initially("3"),
    option({"-cms", "--checkpoint-min-step"}, "N", "Smallest distance of checkpoints.")
        .variable("LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT")
        .no_effect("checkpoints lie at the ends of prompts"),
    option({"-ctx-ckpt-i", "--ctx-checkpoints-interval"}, "N", "Interval of checkpoints.")
        .no_effect("checkpoints lie at the ends of prompts"),
    option({"-ctx-ckpt-t", "--ctx-checkpoints-tolerance"}, "N", "Tolerance of checkpoints.")
        .no_effect("checkpoints lie at the ends of prompts"),
    option({"-ctx-ckpt-e", "--ctx-checkpoints-eviction"}, "WORD", "Eviction of checkpoints.")
        .no_effect("checkpoints lie at the ends of prompts"),
    option({"--slot-save-path"}, "DIR", "Folder for saved slots.").refused("saved slots", kLeaveOut),
    option({"--spm-infill"}, "", "Suffix before prefix in /infill.").no_effect("there is no /infill"),
};

/// Presets that would download a model.
const std::vector<Option> kPresetRows = {
    option({"--embd-gemma-default"}, "", "Download preset."),
    option({"--fim-qwen-1.5b-default"}, "", "Download preset."),
    option({"--fim-qwen-3b-default"}, "", "Download preset."),
    option({"--fim-qwen-7b-default"}, "", "Download preset."),
    option({"--fim-qwen-7b-spec"}, "", "Download preset."),
    option({"--fim-qwen-14b-spec"}, "", "Download preset."),
    option({"--fim-qwen-30b-default"}, "", "Download preset."),
    option({"--gpt-oss-20b-default"}, "", "Download preset."),
    option({"--gpt-oss-120b-default"}, "", "Download preset."),
    option({"--vision-gemma-4b-default"}, "", "Download preset."),
    option({"--vision-gemma-12b-default"}, "", "Download preset."),
};

}  // namespace

void add_server_options(std::vector<Option>& table) {
  for (Option row : kSocketRows) {
    row.group = kServerGroup;
    row.tools = kServer;
    table.push_back(std::move(row));
  }
  for (Option row : kSlotRows) {
    row.group = kSlots;
    if (row.tools == kModelRunners) row.tools = kServer;
    table.push_back(std::move(row));
  }
  for (Option row : kPresetRows) {
    row.group = kServerGroup;
    row.tools = kServer;
    table.push_back(std::move(row.refused(kPreset, kPresetAdvice)));
  }
}

}  // namespace common
