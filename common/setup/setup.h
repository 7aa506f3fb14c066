#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/args/args.h"
#include "common/args/settings.h"
#include "ggml/cpu.h"
#include "llama/context.h"
#include "llama/model.h"
#include "llama/sampling.h"

/// From what the user said to running objects: the same steps in every executable.
namespace common {

struct PlannedRun;  // planned_run.h

/// The CPU device with the threads, affinity and ISA level that were asked for. Throws Error (unknown or missing ISA
/// level).
[[nodiscard]] std::unique_ptr<ggml::Device> make_device(const Settings& settings);

/// The threads that decode and prompt steps run on; an unset count is that of the CPUs of -C, else of physical
/// cores.
struct ThreadCounts {
  int decode = 1, batch = 1;
};
[[nodiscard]] ThreadCounts thread_counts(const Settings& settings);

/// --override-kv, as the model reads it.
[[nodiscard]] std::vector<llama::KvOverride> metadata_overrides(const Settings& settings);

/// How the model of -m is to be read. Throws Error(invalid_argument) when none was given.
[[nodiscard]] llama::ModelParams model_params(const Settings& settings);

/// Loads the model of -m with a progress bar on stderr: on one device, or as a run was planned.
[[nodiscard]] std::unique_ptr<llama::Model> load_model(const Settings& settings, ggml::Device& device);
[[nodiscard]] std::unique_ptr<llama::Model> load_model(const Settings& settings, const PlannedRun& run);

/// Sequences that a program keeps at a time: the server's slots; elsewhere one.
[[nodiscard]] int sequences_of(Tool tool, const Settings& settings);

/// Context parameters for `n_seq` sequences; an unset context size becomes the model's training context. Sequences that
/// do not share the context get whole blocks of it each.
[[nodiscard]] llama::ContextParams context_params(const Settings& settings, const llama::ModelInfo& info, int n_seq);
[[nodiscard]] inline llama::ContextParams context_params(const Settings& settings, const llama::Model& model,
                                                         int n_seq) {
  return context_params(settings, model.info(), n_seq);
}

/// The request defaults: the command line where it spoke, then the model file's general.sampling.*, then ours.
[[nodiscard]] llama::SamplingParams sampling_params(const SamplingSettings& settings, const llama::Model& model);

/// Maps sampler names ("top_k", "temperature", ... in any of their spellings) to the chain; unknown ones are left out
/// with a warning.
[[nodiscard]] std::vector<llama::SamplerKind> sampler_chain(const std::vector<std::string>& names);
/// Puts tail-free sampling behind top-k, where a chain that nobody wrote down has it once its number is set.
void add_tail_free(std::vector<llama::SamplerKind>& chain);
[[nodiscard]] std::string_view sampler_name(llama::SamplerKind kind);
/// The names that a letter string such as "edskypmxt" stands for; unknown letters are left out with a warning.
[[nodiscard]] std::vector<std::string> sampler_names_from_letters(std::string_view letters);

/// One run of a short step, so that pages are mapped and caches are warm before anything is timed (--no-warmup skips
/// it).
void warm_up(llama::Context& context);

/// "b12-0a1b2c3": the build as clients and reports read it.
[[nodiscard]] std::string build_name();

/// The model's name for users: the first alias, else the file's name without its folder.
[[nodiscard]] std::string model_name(const Settings& settings);

}  // namespace common
