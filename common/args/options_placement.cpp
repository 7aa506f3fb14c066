// Which tensor and which operation goes to which device.
#include <algorithm>
#include <array>
#include <limits>

#include "common/args/apply_placement.h"
#include "common/args/option.h"
#include "common/args/table.h"
#include "common/args/tensor_rules.h"

namespace common {
namespace {

constexpr int kMaxLogicalDevices = 8;  // of a card

}  // namespace

void apply_split_mode(Target& target, const Argument& argument) {
  const std::string mode = lower_case(argument.value());
  SplitMode& field = target.settings.placement.split_mode;
  if (mode == "none")
    field = SplitMode::none;
  else if (mode == "layer")
    field = SplitMode::layer;
  else if (mode == "row" || mode == "graph" || mode == "attn" || mode == "tensor")
    refuse(argument, "split mode " + mode, "use -sm layer");
  else
    bad_value(argument, "none or layer");
}

void apply_tensor_split(Target& target, const Argument& argument) {
  constexpr std::size_t kMostDevices = 16;
  std::string entries = argument.value();
  for (char& c : entries)
    if (c == '/') c = ',';
  std::vector<float>& split = target.settings.placement.tensor_split;
  split.clear();
  for (const std::string& entry : split_list(entries)) {
    if (entry.empty()) bad_value(argument, "a number between any two separators");
    split.push_back(static_cast<float>(to_real(argument, entry, 0, 1e9)));
  }
  if (split.size() >= kMostDevices) bad_value(argument, "proportions of fewer than 16 devices");
}

void apply_device(Target& target, const Argument& argument) {
  if (argument.value().empty()) bad_value(argument, "a comma list of device names, or none");
  std::vector<std::string>& names = target.settings.placement.devices.emplace();
  if (argument.value() == "none") return;
  for (std::string& name : split_list(argument.value())) names.push_back(std::move(name));
}

ExpertBlocks take_expert_blocks(const Argument& argument, std::string& number) {
  const std::size_t colon = number.find(':');
  if (colon == std::string::npos) return ExpertBlocks::automatic;
  const std::string form = number.substr(colon + 1);
  number.resize(colon);
  if (form == "first") return ExpertBlocks::first;
  if (form == "last") return ExpertBlocks::last;
  if (form == "even") return ExpertBlocks::even;
  bad_value(argument, "N, N:first, N:last or N:even");
}

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

void apply_n_cpu_moe(Target& target, const Argument& argument) {
  std::string number = argument.value();
  PlacementSettings& placement = target.settings.placement;
  placement.n_cpu_moe_blocks = take_expert_blocks(argument, number);
  placement.n_cpu_moe = static_cast<int>(to_integer(argument, number, 0, kMaxInt));
}

/// "24GiB", "512MiB", "800M", "1073741824".
std::uint64_t to_bytes(const Argument& argument, const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string unit = lower_case(text.substr(digits));
  constexpr std::array<std::string_view, 5> kUnits = {"", "k", "m", "g", "t"};
  for (std::size_t power = 0; power < kUnits.size(); ++power) {
    const std::string letter(kUnits[power]);
    if (unit != letter && unit != letter + "ib" && unit != letter + "b") continue;
    const double number = to_real(argument, text.substr(0, digits), 0, 1e15);
    const double bytes = number * static_cast<double>(std::uint64_t{1} << (10 * power));
    constexpr double kLeast = 1 << 20, kMost = 1e18;
    if (bytes < kLeast || bytes > kMost) bad_value(argument, "a size from 1MiB to 900000TiB behind the name's colon");
    return static_cast<std::uint64_t>(bytes);
  }
  bad_value(argument, "a size such as 24GiB or 512MiB behind the name's colon");
}

/// A name that -dev and -ot can say and that means nothing else there.
bool is_device_name(const std::string& name) {
  const std::string lower = lower_case(name);
  if (lower == "cpu") return name == "CPU";
  if (lower == "none" || lower == "cuda_host" || name.empty()) return false;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return is_letter(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
           return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
         });
}

/// NAME:SIZE[,bw=GBPS][,link=GBPS][,caps=A/B]
void apply_simulated(Target& target, const Argument& argument) {
  constexpr std::string_view kForm = "NAME:SIZE[,bw=GBPS][,link=GBPS][,caps=A/B], one device a flag";
  const std::vector<std::string> parts = split_list(argument.value());
  const std::size_t colon = parts.empty() ? std::string::npos : parts.front().find(':');
  if (colon == std::string::npos || colon == 0) bad_value(argument, kForm);
  SimulatedDevice device;
  device.name = parts.front().substr(0, colon);
  if (!is_device_name(device.name))
    bad_value(argument, "a device name of letters, digits, _, - and . that is not none or CUDA_Host");
  device.bytes = to_bytes(argument, parts.front().substr(colon + 1));
  constexpr double kGiga = 1e9, kLeast = 1e-3, kMost = 1e6;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (equals == std::string::npos) bad_value(argument, kForm);
    const std::string key = parts[i].substr(0, equals), value = parts[i].substr(equals + 1);
    if (key == "bw") {
      device.bandwidth = kGiga * to_real(argument, value, kLeast, kMost);
    } else if (key == "link") {
      device.link = kGiga * to_real(argument, value, kLeast, kMost);
    } else if (key == "caps") {
      for (std::size_t begin = 0; begin < value.size();) {
        const std::size_t end = std::min(value.find('/', begin), value.size());
        device.lacks.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    } else {
      bad_value(argument, kForm);
    }
  }
  for (const SimulatedDevice& other : target.settings.placement.simulated)
    if (other.name == device.name) bad_value(argument, "another name: " + device.name + " is there already");
  target.settings.placement.simulated.push_back(std::move(device));
}

void apply_dry_run(Target& target, const Argument& argument) {
  target.settings.placement.dry_run = argument.bare() ? DryRun::table : DryRun::json;
}

void apply_fit(Target& target, const Argument& argument) {
  Fit& fit = target.settings.placement.fit;
  const std::string word = argument.bare() ? "on" : lower_case(argument.value());
  if (word == "explain")
    fit = Fit::explain;
  else
    fit = is_true_word(word) ? Fit::on : Fit::off;
}

void apply_fit_margins(Target& target, const Argument& argument) {
  std::vector<int>& margins = target.settings.placement.fit_margins_mib;
  margins.clear();
  for (const std::string& item : split_list(argument.value()))
    margins.push_back(static_cast<int>(to_integer(argument, item, 0, kMaxInt)));
  if (margins.empty()) bad_value(argument, "MiB, one for all GPUs or one each");
}

/// Pairs GPU,MIB; whether the GPU is there is seen when the devices are known.
void apply_gpu_margins(Target& target, const Argument& argument) {
  const std::vector<std::string> items = split_list(argument.value());
  if (items.empty() || items.size() % 2 != 0) bad_value(argument, "pairs GPU,MIB");
  for (std::size_t i = 0; i < items.size(); i += 2)
    target.settings.placement.gpu_margins.emplace_back(
        items[i], static_cast<int>(to_integer(argument, items[i + 1], 0, kMaxInt)));
}

/// The keys of -cuda and their types; a misspelt key is not taken for a setting.
void apply_cuda_params(Target& target, const Argument& argument) {
  OffloadSettings& offload = target.settings.placement.offload;
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
      const std::int64_t whole = type == Type::whole ? to_integer(argument, value, -kMaxInt, kMaxInt) : 0;
      const double real = type == Type::real ? to_real(argument, value, -1e9, 1e9) : 0.0;
      if (key == "offload-batch-size") offload.batch_size = static_cast<int>(std::max<std::int64_t>(whole, 0));
      if (key == "offload-batch-size-per-byte")
        offload.batch_size_per_byte = real >= 0.0 ? std::optional(real) : std::nullopt;
      if (type == Type::flag) (void)to_tristate(argument, value, false);
    }
    if (!known) bad_value(argument, kKnown);
  }
}

/// Pairs OPERATION,0|1; the operation is a number of ik_llama.cpp's enumeration or one of three names. Numbers outside
/// of that enumeration mean all operations.
void apply_offload_policy(Target& target, const Argument& argument) {
  constexpr std::string_view kForm =
      "pairs OPERATION,0|1 with the operations MUL_MAT (27), MUL_MAT_ID (28), MOE_UP_GATE (30, 31) or -1 for all";
  constexpr int kBeyondAllOperations = 256;
  OffloadSettings& offload = target.settings.placement.offload;
  const std::vector<std::string> parts = split_list(argument.value());
  if (parts.empty() || parts.size() % 2 != 0) bad_value(argument, kForm);
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    const std::string& name = parts[i];
    if (parts[i + 1] != "0" && parts[i + 1] != "1") bad_value(argument, kForm);
    const bool on = parts[i + 1] == "1";
    const bool named = name == "MUL_MAT" || name == "MUL_MAT_ID" || name == "MOE_UP_GATE";
    const std::int64_t code = named ? 0 : to_integer(argument, name, -kMaxInt, kMaxInt);
    const bool all = code < 0 || code >= kBeyondAllOperations;
    if (!named && !all && code != 27 && code != 28 && code != 30 && code != 31) bad_value(argument, kForm);
    if (all || name == "MUL_MAT" || code == 27) offload.mul_mat = on;
    if (all || name == "MUL_MAT_ID" || code == 28) offload.mul_mat_id = on;
    if (all || name == "MOE_UP_GATE" || code == 30) offload.up_gate = on;
    if (all || name == "MOE_UP_GATE" || code == 31) offload.moe_up_gate = on;
  }
}

const std::vector<Option> kRows = {
    option({"-ngl", "--n-gpu-layers", "--gpu-layers"}, "N",
           "Layers on the GPU, counted from the last, the output head being one of them; auto or all.",
           apply_gpu_layers)
        .variable("LLAMA_ARG_N_GPU_LAYERS")
        .initially("auto"),
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
           "A simulated device of that capacity, which computes on the CPU; repeatable. CPU:SIZE, with --dry-run "
           "and in llama-fit-params, plans for that much host memory.",
           apply_simulated)
        .list()
        .used_by(kModelRunners | kBench),
    option({"--cuda-logical-devices"}, "N",
           "For tests: use every NVIDIA card as N devices, which share its memory. Without a card an error.",
           whole(
               [](Settings& s) -> auto& { return s.placement.cuda_per_card; }, 1, kMaxLogicalDevices))
        .initially("1")
        .used_by(kModelRunners | kBench),
    option({"--device-profile"}, "FNAME",
           "Plan with the speeds of the devices that the file holds. What it does not know is measured first, in a few "
           "seconds, and written to it.",
           text([](Settings& s) -> auto& { return s.placement.device_profile; }))
        .variable("LLAMA_ARG_DEVICE_PROFILE")
        .used_by(kModelRunners | kBench),
    option({"-dr", "--dry-run"}, "[json]",
           "Print the placement plan and end: status 0 when it fits, 2 when it does not.", apply_dry_run)
        .words({"json"})
        .used_by(kModelRunners | kBench),
    option({"-sm", "--split-mode"}, "MODE", "How several GPUs share a model: none or layer.", apply_split_mode)
        .variable("LLAMA_ARG_SPLIT_MODE")
        .initially("layer"),
    option({"-ts", "--tensor-split"}, "N0,N1,...", "Proportions of the GPUs, separated by , or /.", apply_tensor_split)
        .variable("LLAMA_ARG_TENSOR_SPLIT")
        .initially("by free memory"),
    option({"-mg", "--main-gpu"}, "N",
           "With -sm none the GPU of all layers. With -sm layer the GPU to which weights of host memory are sent for "
           "prompts. Counted in the list of -dev; negative: none.",
           whole(
               [](Settings& s) -> auto& { return s.placement.main_gpu; }, -kMaxInt))
        .variable("LLAMA_ARG_MAIN_GPU")
        .initially("0 with -sm none, else the GPU with the fastest link"),
    option({"-ot", "--override-tensor"}, "PATTERN=BUFFER,...",
           "Place the weights whose name matches the regular expression in that buffer type; the first match wins, "
           "those of the environment first. Comma list, repeatable.",
           apply_tensor_rules)
        .variable("LLAMA_ARG_OVERRIDE_TENSOR")
        .list(),
    option({"-cmoe", "--cpu-moe"}, "", "Keep the weights of all experts on the CPU.",
           toggle([](Settings& s) -> auto& { return s.placement.cpu_moe; }))
        .variable("LLAMA_ARG_CPU_MOE")
        .used_by(kModelRunners | kBench)
        .initially("off"),
    option({"-ncmoe", "--n-cpu-moe"}, "N[:first|:last|:even]",
           "Keep the experts of N blocks that have experts on the CPU.", apply_n_cpu_moe)
        .variable("LLAMA_ARG_N_CPU_MOE")
        .initially("0"),
    option({"-ncffn", "--n-cpu-ffn"}, "N", "Keep the dense feed-forward weights of the first N such blocks on the CPU.",
           whole(
               [](Settings& s) -> auto& { return s.placement.n_cpu_ffn; }, 0))
        .variable("LLAMA_ARG_N_CPU_FFN")
        .used_by(kModelRunners | kBench)
        .initially("0"),
    option({"-fit", "--fit"}, "on|off|explain",
           "Choose what was left open of placement and context, for the shortest modelled step; bare: on; explain: say "
           "why.",
           apply_fit)
        .words({"on", "off", "explain", "true", "false", "0", "1"})
        .variable("LLAMA_ARG_FIT")
        .initially("on without -ngl and -ot"),
    option({"-fitt", "--fit-margin", "--fit-target"}, "MIB,...", "Memory that --fit leaves free per GPU.",
           apply_fit_margins)
        .variable("LLAMA_ARG_FIT_TARGET")
        .initially("1024"),
    option({"-fitc", "--fit-ctx"}, "N", "Smallest context that --fit may choose.",
           whole(
               [](Settings& s) -> auto& { return s.placement.fit_context; }, 0))
        .variable("LLAMA_ARG_FIT_CTX")
        .initially("4096"),
    option({"-gfm", "--gpu-fit-margin"}, "GPU,MIB,...",
           "Memory that --fit leaves free on single GPUs, each by its name or its number in -dev.", apply_gpu_margins),
    option({"-fitp", "--fit-print"}, "on|off", "Print the memory per device instead of flags.",
           [](Target& target, const Argument& argument) {
             target.settings.placement.fit_print = to_tristate(argument, argument.value(), false) == Tristate::on;
           })
        .variable("LLAMA_ARG_FIT_ESTIMATE")
        .initially("off")
        .used_by(kFitParams),
    option({"-kvo", "--kv-offload"}, "", "KV cache on the GPUs of its layers.",
           toggle([](Settings& s) -> auto& { return s.placement.kv_offload; }))
        .negative({"-nkvo", "--no-kv-offload"})
        .variable("LLAMA_ARG_KV_OFFLOAD")
        .initially("on"),
    option(
        {"--op-offload"}, "",
        "Compute prompts on a GPU with weights in host memory, which are sent there a layer at a time, where that is "
        "faster; one token never is. GGML_OP_OFFLOAD_MIN_BATCH says for how many tokens instead.",
        toggle([](Settings& s) -> auto& { return s.placement.op_offload; }))
        .negative({"--no-op-offload"})
        .initially("on"),
    option({"-op", "--offload-policy"}, "OP,0|1,...",
           "Switch that off or on for products with dense weights (27 or MUL_MAT), with experts (28 or MUL_MAT_ID), "
           "those fused with an activation (30 dense, 31 experts, MOE_UP_GATE both) or all (-1).",
           apply_offload_policy)
        .used_by(kModelRunners | kBench),
    option({"-ooae", "--offload-only-active-experts"}, "",
           "Send only the experts that a prompt uses, where it will not use nearly all of them.",
           toggle([](Settings& s) -> auto& { return s.placement.offload.only_active_experts; }))
        .negative({"-no-ooae", "--no-offload-only-active-experts"})
        .initially("on"),
    option({"-cuda", "--cuda-params"}, "KEY=VALUE,...",
           "Settings of ik_llama.cpp's CUDA backend. offload-batch-size=N: prompts with weights in host memory are "
           "computed on the GPU from micro-batches of N tokens on, experts from N x all/used; "
           "offload-batch-size-per-byte=F: the same with N = F x bytes per weight. The others are checked only.",
           apply_cuda_params)
        .used_by(kModelRunners | kBench),
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
