#include "common/args/check.h"

#include <algorithm>

namespace common {
namespace {

void check_batches(const std::set<std::string_view>& given, Target& target) {
  ContextSettings& context = target.settings.context;
  if (context.n_ubatch <= context.n_batch) return;
  if (given.contains("--ubatch-size")) {
    target.note(ggml::LogLevel::warn, "-ub " + std::to_string(context.n_ubatch) + " is more than -b " +
                                          std::to_string(context.n_batch) + "; -ub is now " +
                                          std::to_string(context.n_batch));
  }
  context.n_ubatch = context.n_batch;
}

void check_attention(const std::set<std::string_view>& given, Target& target) {
  const Settings& settings = target.settings;
  if (settings.context.flash_attention != Tristate::off) return;
  const ggml::TypeInfo& type_v = ggml::type_info(settings.cache.type_v);
  if (type_v.block_weights > 1) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      "error: -ctv " + std::string(type_v.id) + " needs flash attention, which -fa off switches off",
                      "Use -fa on, or -ctv f16.");
  }
  if (given.contains("--attention-max-batch")) {
    target.note(
        ggml::LogLevel::info,
        "-amb bounds latent attention only: with -fa off other attention holds the scores of a whole micro-batch");
  }
}

void process_escapes(Settings& settings) {
  PromptSettings& prompt = settings.prompt;
  if (!prompt.escape) return;
  for (std::string* text : {&prompt.prompt, &prompt.in_prefix, &prompt.in_suffix}) *text = unescape(*text);
  for (std::string& text : prompt.reverse_prompts) text = unescape(text);
  for (std::string& text : settings.sampling.dry_breakers) text = unescape(text);
}

void check_tokenize(const std::set<std::string_view>& given) {
  const auto sources = std::count_if(given.begin(), given.end(), [](std::string_view name) {
    return name == "--prompt" || name == "--file" || name == "--stdin";
  });
  if (sources == 1) return;
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    sources == 0 ? "error: nothing to tokenize: give one of -p TEXT, -f FILE or --stdin"
                                 : "error: -p, -f and --stdin exclude one another: give one of them");
}

void check_synth(const SynthSettings& synth) {
  if (synth.list) return;
  if (synth.preset.empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: --preset is missing",
                      "llama-gguf synth --list shows all presets.");
  }
  if (synth.output.empty()) throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: -o FNAME is missing");
}

void check_gguf_split(const std::set<std::string_view>& given, const GgufSplitSettings& split) {
  const auto fail = [](const char* what) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, std::string("error: ") + what);
  };
  if (split.merge && given.contains("--split")) fail("--split and --merge exclude one another");
  if (split.merge && (split.max_tensors || split.max_bytes || !split.tensors_in_first))
    fail("--split-max-tensors, --split-max-size and --no-tensor-first-split say how to split, not how to --merge");
}

void check_sweep(const Settings& settings) {
  const auto fail = [](const char* what, const char* hint) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, std::string("error: ") + what, hint);
  };
  if (!settings.bench.compare.empty() && settings.placement.dry_run != DryRun::off)
    fail("--dry-run plans one configuration, --compare measures several", "Leave --compare out.");
  const std::string& chart = settings.bench.chart_file;
  if (!chart.empty() && chart == settings.bench.output_file)
    fail("--chart and --output-file name the same file", "Give one of them another name.");
}

void check_quantize(const QuantizeSettings& quantize) {
  if (quantize.include_weights.empty() || quantize.exclude_weights.empty()) return;
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    "error: --include-weights and --exclude-weights exclude one another");
}

/// The operands of the two programs that have them.
void check_words(Tool tool, const Settings& settings) {
  if (settings.gguf_split.delete_splits && !settings.gguf_split.merge)
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: --delete-splits goes with --merge");
  if (tool == Tool::gguf_split && settings.gguf_split.files.size() != 2) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      "error: an input and an output are needed, " + std::to_string(settings.gguf_split.files.size()) +
                          (settings.gguf_split.files.size() == 1 ? " is given" : " are given"),
                      "usage: llama-gguf-split [options] IN OUT");
  }
  for (const auto* names : {&settings.gguf_split.files, &settings.quantize.words}) {
    const auto empty = std::find(names->begin(), names->end(), std::string());
    if (empty == names->end()) continue;
    throw ggml::Error(
        ggml::ErrorCode::invalid_argument,
        std::string("error: the name of the ") + (empty == names->begin() ? "input" : "output") + " is empty",
        "An unset variable between quotes gives such a word.");
  }
  const std::size_t words = settings.quantize.words.size();
  if (tool == Tool::quantize && (words < 2 || words > 4)) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      words < 2 ? "error: an input and a type are needed" : "error: more than four words are given",
                      "usage: llama-quantize [options] IN.gguf [OUT.gguf] TYPE [NTHREADS]\n"
                      "docs/quantization.md lists the types; an unknown one does too.");
  }
}

}  // namespace

void check_settings(Tool tool, const std::set<std::string_view>& given, Target& target) {
  Settings& settings = target.settings;
  check_batches(given, target);
  check_attention(given, target);
  if (tool == Tool::tokenize) check_tokenize(given);
  if (tool == Tool::gguf_split) check_gguf_split(given, settings.gguf_split);
  if (tool == Tool::quantize) check_quantize(settings.quantize);
  if (tool == Tool::sweep_bench) check_sweep(settings);
  // A text to be scored is data: a backslash in it is a backslash.
  if ((kScorers & tool_bit(tool)) != 0 && !given.contains("--escape")) settings.prompt.escape = false;
  // With the number of slots left open the slots share the context, so that one user gets all of it.
  if (tool == Tool::server && !settings.cache.unified_given) settings.cache.unified = !settings.context.n_parallel;
  // A file given with -bf is bytes, not text with escapes.
  if (given.contains("--binary-file")) {
    const std::string bytes = settings.prompt.prompt;
    process_escapes(settings);
    settings.prompt.prompt = bytes;
  } else {
    process_escapes(settings);
  }
}

void check_model_given(Tool tool, const Settings& settings) {
  if (tool == Tool::gguf && settings.gguf.files.empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: no file is given",
                      "usage: llama-gguf FILE, or llama-gguf synth --help");
  }
  if (tool == Tool::gguf_synth) check_synth(settings.synth);
  if (tool == Tool::gguf && std::count(settings.gguf.files.begin(), settings.gguf.files.end(), std::string()) > 0)
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: the name of the file is empty",
                      "An unset variable between quotes gives such a word.");
  check_words(tool, settings);
  // Files of sums can be merged and looked at without a model.
  const bool sums_only = tool == Tool::imatrix && !settings.imatrix.inputs.empty() &&
                         (settings.prompt.prompt.empty() || settings.imatrix.show_statistics);
  const bool loads = (kModelLoaders & tool_bit(tool)) != 0 && !sums_only;
  if (!loads || !settings.model.path.empty()) return;
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    tool == Tool::server
                        ? "error: a start without a model: needs router mode, not in this version; give -m MODEL"
                        : "error: no model: give -m MODEL",
                    "scripts/get-model.sh smollm2 fetches a small one.");
}

}  // namespace common
