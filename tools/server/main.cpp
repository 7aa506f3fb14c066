// llama-server: serves one model over HTTP.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <new>

#include "api/pieces.h"
#include "common/args/args.h"
#include "common/chat/reply_mask.h"
#include "common/setup/chat_setup.h"
#include "common/setup/grammar_setup.h"
#include "common/setup/planned_run.h"
#include "common/setup/run_tool.h"
#include "common/setup/setup.h"
#include "engine/engine.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "http/http_server.h"

namespace {

using namespace server;

constexpr auto kGrace = std::chrono::seconds(30);  // how long running answers may still take after a first Ctrl-C

constexpr auto kHurry = std::chrono::seconds(1);  // for the last events of answers that were cut short

/// Blocks the two signals in every thread; wait_for_signal() takes them one by one. Call before threads start.
sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a client that leaves is an error code, not our end
  return set;
}

/// Throws Error for a --grammar or --json-schema that is wrong.
std::shared_ptr<Service> make_service(const common::Settings& settings, const llama::Model& model,
                                      const common::chat::ChatTemplates& chat, Engine& engine) {
  const auto grammars = std::make_shared<common::grammar::GrammarCache>(model.vocab());
  const std::string grammar = common::grammar_text(settings.sampling);
  if (!grammar.empty()) (void)grammars->get(grammar);  // a mistake in it is an error now, not at each request
  return std::make_shared<Service>(Service{settings,
                                           model,
                                           chat,
                                           engine,
                                           common::sampling_params(settings.sampling, model),
                                           common::model_name(settings),
                                           common::build_name(),
                                           unix_seconds(),
                                           grammars,
                                           grammar,
                                           {common::chat::tokens_of_marks(*chat.reply_format(false), model.vocab()),
                                            common::chat::tokens_of_marks(*chat.reply_format(true), model.vocab())}});
}

int serve(const common::Settings& settings) {
  const sigset_t signals = block_signals();
  if (settings.model.path.empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "no model was given", "pass a GGUF file with -m FILE");
  }
  const int n_slots = common::sequences_of(common::Tool::server, settings);
  const common::PlannedRun planned = common::plan_run(settings, n_slots);
  common::announce(planned);
  HttpServer http(settings);
  ggml::logf(ggml::LogLevel::info, "listening on http://%s:%d, loading %s", settings.server.host.c_str(), http.port(),
             settings.model.path.c_str());

  const std::unique_ptr<llama::Model> model = common::load_model(settings, planned);
  const common::chat::ChatTemplates chat = common::make_chat_templates(settings.chat, *model);
  llama::Context context(*model, planned.machine->pointers(), planned.plan(), planned.context);
  if (settings.model.warmup) common::warm_up(context);

  EngineParams engine_params;
  engine_params.n_slots = n_slots;
  engine_params.n_ctx_slot = settings.cache.unified ? context.params().n_ctx : context.params().n_ctx / n_slots;
  engine_params.n_predict = settings.prompt.n_predict;
  engine_params.slot_similarity = settings.server.slot_similarity;
  engine_params.adapter_scales = context.params().adapter_scales;
  engine_params.context_shift = settings.cache.context_shift;
  engine_params.continuous_batching = settings.server.continuous_batching;
  Engine engine(context, engine_params);

  http.set_service(make_service(settings, *model, chat, engine));
  ggml::logf(ggml::LogLevel::info, "server is listening on http://%s:%d (%d slots of %d tokens)",
             settings.server.host.c_str(), http.port(), n_slots, engine_params.n_ctx_slot);

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  ggml::logf(ggml::LogLevel::info, "stopping: running answers may end within %lld s; a second signal stops at once",
             static_cast<long long>(kGrace.count()));
  engine.stop(kGrace);
  std::thread second([&signals, &engine, &http] {
    int again = 0;
    sigwait(&signals, &again);
    engine.stop(std::chrono::milliseconds(0));
    http.hurry(kHurry);
  });
  http.stop(kGrace + kHurry);
  http.set_service(nullptr);
  // The thread waits for this signal, which is blocked. NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread)
  pthread_kill(second.native_handle(), SIGTERM);
  second.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::server, argc, argv, serve);
}
