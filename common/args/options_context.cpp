// Context, batches, threads, attention and the switches of the step graph.
#include "common/args/cpu_list.h"
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kContext = "Context and batches";
constexpr std::string_view kThreads = "Threads";
constexpr std::string_view kGraph = "Attention and step graph";
constexpr std::string_view kRope = "Rotary embedding";

Option grouped(std::string_view group, Option row) {
  row.group = group;
  return row;
}

/// Mask in hexadecimal digits, as taskset takes it.
template <class Get>
Apply cpu_mask(Get get) {
  return [=](Target& target, const Argument& argument) { get(target.settings) = to_cpu_mask(argument); };
}

template <class Get>
Apply cpu_range(Get get) {
  return [=](Target& target, const Argument& argument) {
    const auto cpus = parse_cpu_range(argument.value());
    if (!cpus) bad_value(argument, "a range of CPUs such as 0-7");
    get(target.settings) = *cpus;
  };
}

template <class Get>
Apply zero_one(Get get) {
  return [=](Target& target, const Argument& argument) {
    get(target.settings) = to_integer(argument, argument.value(), 0, 1) == 1;
  };
}

const Words<RopeScaling> kRopeWords = {
    {"none", RopeScaling::none}, {"linear", RopeScaling::linear}, {"yarn", RopeScaling::yarn}};
const std::vector<std::string_view> kFlashWords = {"on",   "off",   "auto", "enabled", "disabled",
                                                   "true", "false", "0",    "1",       "-1"};
const std::vector<std::string_view> kSwitchWords = {"on", "off", "true", "false", "0", "1"};

void apply_flash_attention(Target& target, const Argument& argument) {
  Tristate& field = target.settings.context.flash_attention;
  if (argument.negative) {
    field = Tristate::off;
  } else {
    field = argument.bare() ? Tristate::on : to_tristate(argument, argument.value(), true);
  }
}

void apply_numa(Target& target, const Argument& argument) {
  const Words<Numa> words = {
      {"distribute", Numa::distribute}, {"isolate", Numa::isolate}, {"numactl", Numa::numactl}, {"", Numa::distribute}};
  target.settings.threads.numa = to_word(argument, words);
}

void check_group_factor(Target&, const Argument& argument) {
  (void)to_integer(argument, argument.value(), 1, kMaxInt);
}

void apply_rope_scale(Target& target, const Argument& argument) {
  const double scale = to_real(argument, argument.value(), 1e-6, 1e9);
  target.settings.context.rope.freq_scale = static_cast<float>(1.0 / scale);
}

void apply_smart_reduction(Target& target, const Argument& argument) {
  const std::vector<std::string> parts = split_list(argument.value());
  if (parts.size() != 2) bad_value(argument, "one pair Kmin,t such as 6,1");
  const std::int64_t least = to_integer(argument, parts[0], -1, kMaxInt);
  const double threshold = to_real(argument, parts[1], -1e9, 1e9);
  target.settings.context.expert_min = static_cast<int>(least);
  target.settings.context.expert_threshold = least >= 0 ? static_cast<float>(threshold) : 0.0F;
}

const std::vector<Option> kContextRows = {
    option({"-c", "--ctx-size"}, "N",
           "Size of the context in tokens, over all slots; rounded up to a multiple of 64 (for each slot that has its "
           "own).",
           whole(
               [](Settings& s) -> auto& { return s.context.n_ctx; }, 0))
        .variable("LLAMA_ARG_CTX_SIZE")
        .initially("0: what the model was trained with; llama-perplexity and llama-imatrix: 512 per sequence"),
    option({"-b", "--batch-size"}, "N", "Logical batch: tokens that one step may carry.",
           whole(
               [](Settings& s) -> auto& { return s.context.n_batch; }, 1))
        .variable("LLAMA_ARG_BATCH")
        .initially("2048"),
    option({"-ub", "--ubatch-size"}, "N", "Physical batch: tokens computed at a time; never more than -b.",
           whole(
               [](Settings& s) -> auto& { return s.context.n_ubatch; }, 1))
        .variable("LLAMA_ARG_UBATCH")
        .initially("512"),
    option({"-np", "--parallel"}, "N", "Number of slots, that is of sequences served at the same time; -1 chooses.",
           [](Target& target, const Argument& argument) {
             const std::int64_t n = to_integer(argument, argument.value(), -1, 65536);
             if (n == 0) bad_value(argument, "a whole number of at least 1, or -1");
             if (n > 0) target.settings.context.n_parallel = static_cast<int>(n);
           })
        .variable("LLAMA_ARG_N_PARALLEL")
        .used_by(kServer)
        .initially("4"),
    option({"--keep"}, "N", "Tokens of the first prompt that a context shift keeps; -1 keeps all of them.",
           whole(
               [](Settings& s) -> auto& { return s.cache.n_keep; }, -1))
        .used_by(kGenerators)
        .initially("0"),
    option(
        {"--context-shift"}, "", "When the context is full, drop the older half of the tokens behind --keep and go on.",
        [](Target& target, const Argument& argument) {
          bool& shift = target.settings.cache.context_shift;
          shift = argument.bare() ? !argument.negative : to_tristate(argument, argument.value(), true) != Tristate::off;
        })
        .negative({"--no-context-shift"})
        .words({"on", "off", "auto", "0", "1"})
        .variable("LLAMA_ARG_CONTEXT_SHIFT")
        .used_by(kGenerators)
        .initially("off"),
    option({"--swa-full"}, "", "Give sliding-window layers a cache of the full context.")
        .variable("LLAMA_ARG_SWA_FULL")
        .no_effect(
            "sliding-window layers keep their window only, so a prompt that goes back behind it is computed anew"),
    option({"--swa-compress"}, "", "Give sliding-window layers a cache of the window only.")
        .no_effect("that is always so"),
    option({"-dt", "--defrag-thold"}, "N", "Defragmentation threshold of the KV cache.")
        .variable("LLAMA_ARG_DEFRAG_THOLD")
        .no_effect("the cache is made of blocks and does not fragment"),
    option({"-dkvc", "--dump-kv-cache"}, "", "Debugging print of the KV cache.")
        .no_effect("/slots and -v show the cache"),
    option({"-ns", "--sequences"}, "N", "Sequences of the example programs.").used_by(0),
    option({"-gan", "--grp-attn-n"}, "N", "Self-extend: group factor.", check_group_factor)
        .variable("LLAMA_ARG_GRP_ATTN_N")
        .used_by(kGenerators)
        .no_effect_warning("self-extend is not available; YaRN (--rope-scaling yarn) stretches the context instead")
        .unless({"1"})
        .initially("1"),
    option({"-gaw", "--grp-attn-w"}, "N", "Self-extend: group width.")
        .variable("LLAMA_ARG_GRP_ATTN_W")
        .used_by(kGenerators)
        .no_effect("self-extend is not available"),
};

const std::vector<Option> kThreadRows = {
    option({"-t", "--threads"}, "N", "Threads for generation; 0 or less: all CPUs.",
           [](Target& target, const Argument& argument) {
             const std::int64_t n = to_integer(argument, argument.value(), -kMaxInt, 65536);
             target.settings.threads.n_threads = n > 0 ? static_cast<int>(n) : hardware_threads();
           })
        .variable("LLAMA_ARG_THREADS")
        .initially("physical cores; with -C or -Cr, their CPUs"),
    option({"-tb", "--threads-batch"}, "N", "Threads for prompts; 0 or less: all CPUs.",
           [](Target& target, const Argument& argument) {
             const std::int64_t n = to_integer(argument, argument.value(), -kMaxInt, 65536);
             target.settings.threads.n_threads_batch = n > 0 ? static_cast<int>(n) : hardware_threads();
           })
        .used_by(kModelRunners | kBench)
        .initially("as -t"),
    option({"-C", "--cpu-mask"}, "M", "CPUs that the threads may use, as a mask in hexadecimal.",
           cpu_mask([](Settings& s) -> auto& { return s.threads.cpus; })),
    option({"-Cr", "--cpu-range"}, "LO-HI", "The same as an inclusive range.",
           cpu_range([](Settings& s) -> auto& { return s.threads.cpus; }))
        .used_by(kModelRunners | kBench),
    option({"--cpu-strict"}, "0|1", "Pin each thread to one CPU of the mask.",
           zero_one([](Settings& s) -> auto& { return s.threads.strict; }))
        .initially("0"),
    option({"--prio"}, "N",
           "Priority of the threads: -1 low, 0 normal, 1 medium, 2 high, 3 realtime. Above 0 needs the system's leave.",
           whole(
               [](Settings& s) -> auto& { return s.threads.priority; }, -1, 3))
        .used_by(kModelRunners | kBench)
        .initially("0"),
    option({"--poll"}, "0...100", "How long threads spin for work before they sleep; 0 sleeps at once.",
           whole(
               [](Settings& s) -> auto& { return s.threads.poll; }, 0, 100))
        .initially("50"),
    option({"-Cb", "--cpu-mask-batch"}, "M", "As -C, for prompts, which then have threads of their own.",
           cpu_mask([](Settings& s) -> auto& { return s.threads.cpus_batch; }))
        .initially("as -C"),
    option({"-Crb", "--cpu-range-batch"}, "LO-HI", "As -Cr, for prompts.",
           cpu_range([](Settings& s) -> auto& { return s.threads.cpus_batch; }))
        .initially("as -Cr"),
    option({"--cpu-strict-batch"}, "0|1", "As --cpu-strict, for prompts.",
           zero_one([](Settings& s) -> auto& { return s.threads.strict_batch; }))
        .initially("as --cpu-strict"),
    option({"--prio-batch"}, "N", "As --prio, for prompts.",
           whole(
               [](Settings& s) -> auto& { return s.threads.priority_batch; }, -1, 3))
        .initially("as --prio"),
    option({"--poll-batch"}, "0...100", "As --poll, for prompts.",
           whole(
               [](Settings& s) -> auto& { return s.threads.poll_batch; }, 0, 100))
        .initially("as --poll"),
    option(
        {"--numa"}, "TYPE",
        "Machines with several memory nodes: distribute puts each thread on a core of its own, of every node in turn, "
        "and deals memory out over the nodes; isolate keeps both on the node of the start; numactl leaves both where "
        "the process was started. CPUs of -C and -Cr are kept.",
        apply_numa)
        .variable("LLAMA_ARG_NUMA")
        .used_by(kModelRunners | kBench)
        .initially("off"),
};

const std::vector<Option> kGraphRows = {
    option({"-fa", "--flash-attn"}, "on|off|auto", "Flash attention; bare: on.", apply_flash_attention)
        .negative({"-no-fa", "--no-flash-attn"})
        .words(kFlashWords)
        .variable("LLAMA_ARG_FLASH_ATTN")
        .initially("auto"),
    option({"-gr", "--graph-reuse"}, "", "Keep the built step graph between steps of the same shape.",
           toggle([](Settings& s) -> auto& { return s.context.graph_reuse; }))
        .negative({"-no-gr", "--no-graph-reuse"})
        .initially("on"),
    option({"-fmoe", "--fused-moe"}, "on|off", "Compute the expert layer as one operation; bare: on.",
           toggle_word([](Settings& s) -> auto& { return s.context.fused_experts; }))
        .negative({"-no-fmoe", "--no-fused-moe"})
        .words(kSwitchWords)
        .initially("on"),
    option({"-no-fug", "--no-fused-up-gate"}, "", "Compute up and gate of dense layers one by one.",
           [](Target& target, const Argument&) { target.settings.context.fused_up_gate = false; }),
    option({"-no-mmad", "--no-fused-mul-multiadd"}, "",
           "Weight and add the experts' outputs in operations of their own.",
           [](Target& target, const Argument&) { target.settings.context.fused_expert_sum = false; })
        .used_by(kModelRunners | kBench),
    option({"-mla", "--mla-use"}, "N",
           "How multi-head latent attention is computed: 0 keys and values cached, 1 latents cached and absorbed, 2 "
           "expanded "
           "from latents, 3 prompts expanded.",
           whole(
               [](Settings& s) -> auto& { return s.context.mla; }, 0, 3))
        .initially("latents cached, the form by modelled cost"),
    option({"-amb", "--attention-max-batch"}, "N",
           "Bound in MiB of what latent attention holds at a time; 0: none, 1 to 127 count as 128.",
           whole(
               [](Settings& s) -> auto& { return s.context.attention_max_batch_mib; }, 0))
        .initially("256"),
    option({"-ger", "--grouped-expert-routing"}, "", "Group-limited choice of experts.")
        .no_effect("groups are used whenever the model defines them"),
    option({"-ser", "--smart-expert-reduction"}, "KMIN,T",
           "Skip experts beyond rank KMIN whose score is below T times the best one; -1,0 is off.",
           apply_smart_reduction)
        .initially("-1,0"),
    option({"-mqkv", "--merge-qkv"}, "",
           "Merge the Q, K and V weights of a layer at load, where they have one type and one device. A copy in memory "
           "takes the place of the mapped file.",
           toggle([](Settings& s) -> auto& { return s.model.merge_qkv; }))
        .used_by(kModelRunners & ~kImatrix)
        .initially("off"),
    option({"-muge", "--merge-up-gate-experts"}, "", "The same with the up and gate tensors of experts.",
           toggle([](Settings& s) -> auto& { return s.model.merge_up_gate; }))
        .used_by(kModelRunners & ~kImatrix)
        .initially("off"),
    option({"-rcache", "--rope-cache"}, "", "Removed by its project.").no_effect("it was removed where it came from"),
    option({"-fdn", "--fused-delta-net"}, "N", "Deprecated by its project.").no_effect("fusion needs no switch"),
    option({"-dsa", "--dsa"}, "", "Sparse attention.").no_effect_warning("attention is dense"),
    option({"-fidx", "--fused-indexer-topk"}, "", "Fused indexer of sparse attention.")
        .no_effect_warning("attention is dense"),
    option({"-dsatk", "--dsa-top-k"}, "N", "Top-k of sparse attention.").no_effect_warning("attention is dense"),
    option({"-wgt", "--worst-graph-tokens"}, "N", "Tokens assumed for the size of compute buffers.")
        .no_effect("compute buffers are counted exactly"),
    option({"--attention"}, "T", "causal or non-causal attention of embedding programs.")
        .no_effect_warning("the model says which it is"),
    option({"--pooling"}, "T", "Pooling of embeddings.")
        .variable("LLAMA_ARG_POOLING")
        .used_by(kServer)
        .refused("embeddings", "leave it out"),
    option({"-bs", "--backend-sampling"}, "", "Sample on the device that computes.")
        .negative({"--no-backend-sampling"})
        .variable("LLAMA_ARG_BACKEND_SAMPLING")
        .used_by(kGenerators)
        .initially("on")
        .on_cpu(),
    option({"--trace"}, "FNAME",
           "Write what ran when to a file that chrome://tracing and ui.perfetto.dev show: a row for each device and "
           "link. On simulated devices the times are those of the cost model.",
           text([](Settings& s) -> auto& { return s.schedule.trace_file; }))
        .used_by((kModelRunners & ~kFitParams) | kBench),
    option({"--sched-report"}, "",
           "At the end, log the splits of a step and what it copied over each link, for prompts and for decoding.",
           toggle([](Settings& s) -> auto& { return s.schedule.report; }))
        .used_by(kModelRunners & ~kFitParams)
        .initially("off"),
    option({"--perf"}, "", "Internal timing counters.")
        .negative({"--no-perf"})
        .variable("LLAMA_ARG_PERF")
        .no_effect("timings are always taken; -v shows more of them"),
};

const std::vector<Option> kRopeRows = {
    option({"--rope-scaling"}, "T", "How the context is stretched: none, linear or yarn.",
           word(
               [](Settings& s) -> auto& { return s.context.rope.scaling; }, kRopeWords))
        .variable("LLAMA_ARG_ROPE_SCALING_TYPE")
        .initially("model"),
    option({"--rope-scale"}, "N", "Factor by which the context is stretched.", apply_rope_scale)
        .variable("LLAMA_ARG_ROPE_SCALE")
        .initially("model"),
    option({"--rope-freq-base"}, "N", "Base frequency; 0: the model's.",
           [](Target& target, const Argument& argument) {
             const double base = to_real(argument, argument.value(), 0, 1e12);
             if (base > 0) target.settings.context.rope.freq_base = static_cast<float>(base);
           })
        .variable("LLAMA_ARG_ROPE_FREQ_BASE")
        .initially("model"),
    option({"--rope-freq-scale"}, "N", "Frequency scale, the inverse of --rope-scale; 0: the model's.",
           [](Target& target, const Argument& argument) {
             const double scale = to_real(argument, argument.value(), 0, 1e9);
             if (scale > 0) target.settings.context.rope.freq_scale = static_cast<float>(scale);
           })
        .variable("LLAMA_ARG_ROPE_FREQ_SCALE")
        .initially("model"),
    option({"--yarn-orig-ctx"}, "N", "YaRN: context before stretching; 0: the model's.",
           [](Target& target, const Argument& argument) {
             const std::int64_t n = to_integer(argument, argument.value(), 0, kMaxInt);
             if (n > 0) target.settings.context.rope.yarn_orig_ctx = static_cast<int>(n);
           })
        .variable("LLAMA_ARG_YARN_ORIG_CTX")
        .initially("model"),
    option({"--yarn-ext-factor"}, "N", "YaRN: extrapolation mix, 0 is full interpolation.",
           real(
               [](Settings& s) -> auto& { return s.context.rope.yarn_ext_factor; }, -1, 1e9))
        .variable("LLAMA_ARG_YARN_EXT_FACTOR")
        .initially("model"),
    option({"--yarn-attn-factor"}, "N", "YaRN: scale of the attention magnitude.",
           real(
               [](Settings& s) -> auto& { return s.context.rope.yarn_attn_factor; }, -1, 1e9))
        .variable("LLAMA_ARG_YARN_ATTN_FACTOR")
        .initially("model"),
    option({"--yarn-beta-slow"}, "N", "YaRN: high correction dimension.",
           real(
               [](Settings& s) -> auto& { return s.context.rope.yarn_beta_slow; }, -1, 1e9))
        .variable("LLAMA_ARG_YARN_BETA_SLOW")
        .initially("model"),
    option({"--yarn-beta-fast"}, "N", "YaRN: low correction dimension.",
           real(
               [](Settings& s) -> auto& { return s.context.rope.yarn_beta_fast; }, -1, 1e9))
        .variable("LLAMA_ARG_YARN_BETA_FAST")
        .initially("model"),
};

}  // namespace

void add_context_options(std::vector<Option>& table) {
  for (const Option& row : kContextRows) table.push_back(grouped(kContext, row));
  for (const Option& row : kThreadRows) table.push_back(grouped(kThreads, row));
  for (const Option& row : kGraphRows) table.push_back(grouped(kGraph, row));
  for (Option row : kRopeRows) table.push_back(grouped(kRope, row.used_by(kModelRunners | kBench)));
}

}  // namespace common
