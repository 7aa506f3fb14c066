// Which tensor and which operation goes to which device.
#include <array>
#include <limits>

#include "common/args/option.h"
#include "common/args/table.h"
#include "common/args/tensor_rules.h"

namespace common {
namespace {

constexpr std::string_view kPlacement = "Placement";
constexpr std::string_view kGraphSplit = "split mode graph";
constexpr std::string_view kGraphSplitAdvice = "use -sm layer without it";

void apply_gpu_layers(Target& target, const Argument& argument) {
  const std::string word = lower_case(argument.value());
  std::optional<int>& layers = target.settings.placement.n_gpu_layers;
  if (word == "auto" || word == "-1") {
    layers.reset();
  } else if (word == "all") {
    layers = std::numeric_limits<int>::max();
  } else {
    const std::int64_t n = to_integer(argument, argument.value(), -kMaxInt, kMaxInt);
    layers = n < 0 ? std::numeric_limits<int>::max() : static_cast<int>(n);
  }
}

void apply_tensor_rules(Target& target, const Argument& argument) {
  for (TensorRule& rule : parse_tensor_rules(argument)) {
    target.settings.placement.tensor_rules.push_back(std::move(rule));
  }
}

/// N, N:first, N:last or N:even; where there is one device the forms mean the same.
void apply_n_cpu_moe(Target& target, const Argument& argument) {
  std::string number = argument.value();
  const std::size_t colon = number.find(':');
  if (colon != std::string::npos) {
    const std::string form = number.substr(colon + 1);
    if (form != "first" && form != "last" && form != "even") bad_value(argument, "N, N:first, N:last or N:even");
    number.resize(colon);
  }
  target.settings.placement.n_cpu_moe = static_cast<int>(to_integer(argument, number, 0, kMaxInt));
}

void apply_split_mode(Target&, const Argument& argument) {
  const std::string mode = lower_case(argument.value());
  if (mode == "none" || mode == "layer") return;
  if (mode == "row" || mode == "graph" || mode == "attn" || mode == "tensor")
    refuse(argument, "split mode " + mode, "use -sm layer");
  bad_value(argument, "none or layer");
}

void apply_tensor_split(Target& target, const Argument& argument) {
  std::string entries = argument.value();
  for (char& c : entries)
    if (c == '/') c = ',';
  target.settings.placement.tensor_split.clear();
  for (const std::string& entry : split_list(entries)) {
    target.settings.placement.tensor_split.push_back(
        entry.empty() ? 0.0F : static_cast<float>(to_real(argument, entry, 0, 1e9)));
  }
}

void apply_main_gpu(Target& target, const Argument& argument) {
  const std::int64_t index = to_integer(argument, argument.value(), -kMaxInt, kMaxInt);
  if (index > 0) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "error while handling argument \"" + argument.name +
                                                             "\": there is no GPU " + argument.value() +
                                                             "; GPU devices: (none)");
  }
  target.settings.placement.main_gpu = static_cast<int>(index);
}

void apply_device(Target&, const Argument& argument) {
  if (argument.value() == "none") return;
  if (argument.value().empty()) bad_value(argument, "a comma list of device names, or none");
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    "error while handling argument \"" + argument.name + "\": invalid device: " + argument.value() +
                        "; known GPU devices: (none)",
                    "Leave it out, or use -dev none: this build computes on the CPU.");
}

/// A list of whole numbers, checked and otherwise not needed without a GPU.
void check_numbers(Target&, const Argument& argument) {
  for (const std::string& item : split_list(argument.value())) (void)to_integer(argument, item, 0, kMaxInt);
}

/// The keys of -cuda and their types; checked so that a misspelt key is not taken for a setting.
void check_cuda_params(Target&, const Argument& argument) {
  enum class Type : std::uint8_t { whole, real, flag };
  constexpr std::array<std::pair<std::string_view, Type>, 7> kKeys = {
      std::pair<std::string_view, Type>{"fusion", Type::whole},
      {"offload-batch-size", Type::whole},
      {"offload-batch-size-per-byte", Type::real},
      {"mmq-id-size", Type::whole},
      {"fa-offset", Type::real},
      {"graphs", Type::flag},
      {"enable-p2p", Type::flag}};
  constexpr std::string_view kKnown =
      "KEY=VALUE items with the keys fusion=INT, offload-batch-size=INT, offload-batch-size-per-byte=FLOAT, "
      "mmq-id-size=INT, fa-offset=FLOAT, graphs=BOOL, enable-p2p=BOOL";
  for (const std::string& item : split_list(argument.value())) {
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    bool known = false;
    for (const auto& [name, type] : kKeys) {
      if (key != name || equals == std::string::npos) continue;
      known = true;
      const std::string value = item.substr(equals + 1);
      if (type == Type::whole) (void)to_integer(argument, value, -kMaxInt, kMaxInt);
      if (type == Type::real) (void)to_real(argument, value, -1e9, 1e9);
      if (type == Type::flag) (void)to_tristate(argument, value, false);
    }
    if (!known) bad_value(argument, kKnown);
  }
}

/// Pairs OPERATION,0|1; the operation is a number of ik_llama.cpp's enumeration or one of three names.
void check_offload_policy(Target&, const Argument& argument) {
  constexpr std::string_view kForm =
      "pairs OPERATION,0|1 with the operations MUL_MAT (27), MUL_MAT_ID (28), MOE_UP_GATE (30, 31) or -1 for all";
  const std::vector<std::string> parts = split_list(argument.value());
  if (parts.size() % 2 != 0) bad_value(argument, kForm);
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    if (parts[i + 1] != "0" && parts[i + 1] != "1") bad_value(argument, kForm);
    const bool named = parts[i] == "MUL_MAT" || parts[i] == "MUL_MAT_ID" || parts[i] == "MOE_UP_GATE";
    if (!named) (void)to_integer(argument, parts[i], -kMaxInt, kMaxInt);
  }
}

const std::vector<Option> kRows = {
    option({"-ngl", "--n-gpu-layers", "--gpu-layers"}, "N",
           "Layers on the GPU, counted from the last, the output head being one of them; auto or all.",
           apply_gpu_layers)
        .variable("LLAMA_ARG_N_GPU_LAYERS")
        .initially("auto")
        .on_cpu(),
    option({"-dev", "--device"}, "LIST", "GPU devices to use, in that order; none uses the CPU only.", apply_device)
        .variable("LLAMA_ARG_DEVICE")
        .initially("all"),
    option({"--list-devices"}, "", "List the GPU devices and end.",
           toggle([](Settings& s) -> auto& { return s.model.list_devices; }))
        .used_by(kModelRunners | kBench),
    option({"--list-architectures"}, "", "List the model architectures that load and end.",
           toggle([](Settings& s) -> auto& { return s.model.list_architectures; }))
        .used_by(kCli),
    option({"--sim-device"}, "NAME:SIZE[,bw=GBPS][,link=GBPS][,caps=A/B]",
           "A simulated device of that capacity; repeatable.")
        .list()
        .refused("simulated devices", "leave it out"),
    option({"-dr", "--dry-run"}, "[json]", "Print the placement plan and end.")
        .words({"json"})
        .refused("the placement plan", "leave it out"),
    option({"-sm", "--split-mode"}, "MODE", "How several GPUs share a model: none or layer.", apply_split_mode)
        .variable("LLAMA_ARG_SPLIT_MODE")
        .initially("layer")
        .on_cpu(),
    option({"-ts", "--tensor-split"}, "N0,N1,...", "Proportions of the GPUs, separated by , or /.", apply_tensor_split)
        .variable("LLAMA_ARG_TENSOR_SPLIT")
        .initially("by free memory")
        .on_cpu(),
    option({"-mg", "--main-gpu"}, "N", "The GPU used with -sm none.", apply_main_gpu)
        .variable("LLAMA_ARG_MAIN_GPU")
        .initially("0")
        .on_cpu(),
    option(
        {"-ot", "--override-tensor"}, "PATTERN=BUFFER,...",
        "Place the weights whose name matches the regular expression in that buffer type; the first match wins. Comma "
        "list, repeatable.",
        apply_tensor_rules)
        .variable("LLAMA_ARG_OVERRIDE_TENSOR")
        .list()
        .on_cpu(),
    option({"-cmoe", "--cpu-moe"}, "", "Keep the weights of all experts on the CPU.",
           toggle([](Settings& s) -> auto& { return s.placement.cpu_moe; }))
        .variable("LLAMA_ARG_CPU_MOE")
        .initially("off")
        .on_cpu(),
    option({"-ncmoe", "--n-cpu-moe"}, "N[:first|:last|:even]",
           "Keep the experts of N blocks that have experts on the CPU.", apply_n_cpu_moe)
        .variable("LLAMA_ARG_N_CPU_MOE")
        .initially("0")
        .on_cpu(),
    option({"-ncffn", "--n-cpu-ffn"}, "N", "Keep the dense feed-forward weights of the first N such blocks on the CPU.",
           [](Target&, const Argument& argument) { (void)to_integer(argument, argument.value(), 0, kMaxInt); })
        .variable("LLAMA_ARG_N_CPU_FFN")
        .initially("0")
        .on_cpu(),
    option({"-fit", "--fit"}, "on|off|explain", "Choose the placement by itself; bare: on.")
        .words({"on", "off", "explain", "true", "false", "0", "1"})
        .variable("LLAMA_ARG_FIT")
        .initially("on without -ngl and -ot")
        .on_cpu(),
    option({"-fitt", "--fit-margin", "--fit-target"}, "MIB,...", "Memory that --fit leaves free per GPU.",
           check_numbers)
        .variable("LLAMA_ARG_FIT_TARGET")
        .initially("1024")
        .on_cpu(),
    option({"-fitc", "--fit-ctx"}, "N", "Smallest context that --fit may choose.",
           [](Target&, const Argument& argument) { (void)to_integer(argument, argument.value(), 0, kMaxInt); })
        .variable("LLAMA_ARG_FIT_CTX")
        .initially("4096")
        .on_cpu(),
    option({"-gfm", "--gpu-fit-margin"}, "GPU,MIB,...", "Memory that --fit leaves free on single GPUs.", check_numbers)
        .on_cpu(),
    option({"-kvo", "--kv-offload"}, "", "KV cache on the GPUs of its layers.",
           toggle([](Settings& s) -> auto& { return s.placement.kv_offload; }))
        .negative({"-nkvo", "--no-kv-offload"})
        .variable("LLAMA_ARG_KV_OFFLOAD")
        .initially("on")
        .on_cpu(),
    option({"--op-offload"}, "", "Compute big batches on the GPU although the weights are in host memory.",
           toggle([](Settings& s) -> auto& { return s.placement.op_offload; }))
        .negative({"--no-op-offload"})
        .initially("on")
        .on_cpu(),
    option({"-op", "--offload-policy"}, "OP,0|1,...", "Switch that off or on for single operations.",
           check_offload_policy)
        .on_cpu(),
    option({"-ooae", "--offload-only-active-experts"}, "", "Copy only the experts that a batch uses.")
        .negative({"-no-ooae", "--no-offload-only-active-experts"})
        .initially("on")
        .on_cpu(),
    option({"-cuda", "--cuda-params"}, "KEY=VALUE,...", "Settings of the CUDA backend.", check_cuda_params).on_cpu(),
    option({"--nvlink-optimized"}, "", "As -cuda enable-p2p=1.").on_cpu(),
    option({"--no-host"}, "", "No pinned host buffers.").variable("LLAMA_ARG_NO_HOST").initially("off").on_cpu(),
    option({"--rpc"}, "HOST:PORT,...", "Remote backends.")
        .variable("LLAMA_ARG_RPC")
        .refused("remote backends", "leave it out"),
    option({"-smgs", "--split-mode-graph-scheduling"}, "", "Scheduling of split mode graph.")
        .refused(kGraphSplit, kGraphSplitAdvice),
    option({"-smf16", "--split-mode-f16"}, "", "Exchange type of split mode graph.")
        .refused(kGraphSplit, kGraphSplitAdvice),
    option({"-smf32", "--split-mode-f32"}, "", "Exchange type of split mode graph.")
        .refused(kGraphSplit, kGraphSplitAdvice),
    option({"-grt", "--graph-reduce-type"}, "T", "Exchange type of split mode graph.")
        .refused(kGraphSplit, kGraphSplitAdvice),
    option({"-gap", "--graph-attn-precision"}, "T", "Attention precision of split mode graph.")
        .refused(kGraphSplit, kGraphSplitAdvice),
    option({"-sas", "--scheduler-async"}, "", "Threads of split mode graph.").refused(kGraphSplit, kGraphSplitAdvice),
    option({"--max-gpu"}, "N", "GPUs per layer of split mode graph.")
        .refused(kGraphSplit, kGraphSplitAdvice)
        .unless({"0"}),
};

}  // namespace

void add_placement_options(std::vector<Option>& table) {
  for (Option row : kRows) {
    row.group = kPlacement;
    table.push_back(std::move(row));
  }
}

}  // namespace common
