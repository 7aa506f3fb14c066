// llama-server: serves one model over HTTP.
#include <chrono>
#include <memory>

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
#include "stop_signals.h"

namespace {

using namespace server;

/// Throws Error for a --grammar or --json-schema that is wrong.
std::shared_ptr<Service> make_service(const common::Settings& settings, const llama::Model& model,
                                      const common::chat::ChatTemplates& chat, Engine& engine) {
  const auto grammars = std::make_shared<common::grammar::GrammarCache>(model.vocab());
  // A mistake in it is an error now, not at each request.
  const std::string grammar = common::given_grammar(settings.sampling, *grammars).gbnf;
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
                                            common::chat::tokens_of_marks(*chat.reply_format(true), model.vocab())},
                                           PromptBound(model.vocab())});
}

int serve(const common::Settings& settings) {
  StopSignals signals;
  if (settings.model.path.empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "no model was given", "pass a GGUF file with -m FILE");
  }
  const int n_slots = common::sequences_of(common::Tool::server, settings);
  const common::PlannedRun planned = common::plan_run(settings, n_slots);
  common::announce(planned);
  HttpServer http(settings);
  if (http.socket_file() != nullptr) signals.set_clean_up([file = http.socket_file()] { file->remove(); });
  ggml::logf(ggml::LogLevel::info, "listening on %s, loading %s", http.address().c_str(), settings.model.path.c_str());

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
  ggml::logf(ggml::LogLevel::info, "server is listening on %s (%d slots of %d tokens)", http.address().c_str(), n_slots,
             engine_params.n_ctx_slot);

  signals.wait({[&engine, &http] {
                  engine.stop(std::chrono::milliseconds(0));
                  http.hurry(StopSignals::kHurry);
                },
                [&http] { return ggml::strf("%d requests had not been answered", http.n_open_requests()); }});
  engine.stop(StopSignals::kGrace);
  http.stop(StopSignals::kGrace + StopSignals::kHurry);
  signals.stopped();
  http.set_service(nullptr);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::server, argc, argv, serve);
}
