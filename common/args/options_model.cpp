// Where the model comes from, how it is loaded, and what is attached to it.
#include <charconv>

#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kModel = "Model";
constexpr std::string_view kAdapters = "Adapters and multimodal input";

constexpr std::string_view kDownload = "downloads";
constexpr std::string_view kDownloadAdvice = "fetch the file yourself (scripts/get-model.sh, curl) and give -m FILE";
constexpr std::string_view kLeaveOut = "leave it out";
constexpr std::string_view kMultimodal = "multimodal input";

void apply_load_mode(Target& target, const Argument& argument) {
  ModelSettings& model = target.settings.model;
  struct Mode {
    LoadMode load;
    bool lock;
  };
  const Words<Mode> words = {{"auto", {LoadMode::mmap, false}},      {"mmap", {LoadMode::mmap, false}},
                             {"none", {LoadMode::read, false}},      {"mlock", {LoadMode::read, true}},
                             {"mmap+mlock", {LoadMode::mmap, true}}, {"dio", {LoadMode::direct_io, false}}};
  const Mode mode = to_word(argument, words);
  model.load_mode = mode.load;
  model.lock_memory = mode.lock;
}

void apply_mmap(Target& target, const Argument& argument) {
  target.settings.model.load_mode = argument.negative ? LoadMode::read : LoadMode::mmap;
}

void apply_direct_io(Target& target, const Argument& argument) {
  LoadMode& mode = target.settings.model.load_mode;
  if (!argument.negative) {
    mode = LoadMode::direct_io;
  } else if (mode == LoadMode::direct_io) {
    mode = LoadMode::mmap;
  }
}

MetadataOverride parse_override(const Argument& argument, const std::string& item) {
  constexpr std::size_t kMaxKey = 127;
  constexpr std::size_t kMaxValue = 127;
  constexpr std::string_view kForm = "KEY=TYPE:VALUE with TYPE int, float, bool or str, key and value up to 127 bytes";
  const std::size_t equals = item.find('=');
  const std::size_t colon = equals == std::string::npos ? std::string::npos : item.find(':', equals);
  if (colon == std::string::npos || equals == 0 || equals > kMaxKey) bad_value(argument, kForm);
  MetadataOverride out;
  out.key = item.substr(0, equals);
  const std::string type = item.substr(equals + 1, colon - equals - 1);
  out.text = item.substr(colon + 1);
  if (out.text.size() > kMaxValue) bad_value(argument, kForm);
  if (type == "int") {
    out.type = MetadataOverride::Type::integer;
    const auto [end, failure] = std::from_chars(out.text.data(), out.text.data() + out.text.size(), out.integer);
    if (failure != std::errc() || *end != '\0' || out.text.empty()) bad_value(argument, kForm);
  } else if (type == "float") {
    out.type = MetadataOverride::Type::number;
    out.number = to_real(argument, out.text, -1e300, 1e300);
  } else if (type == "bool") {
    out.type = MetadataOverride::Type::boolean;
    out.boolean = out.text == "true";
    if (!out.boolean && out.text != "false") bad_value(argument, "true or false after bool:");
  } else if (type != "str") {
    bad_value(argument, kForm);
  }
  return out;
}

void apply_overrides(Target& target, const Argument& argument) {
  for (const std::string& item : split_list(argument.value())) {
    target.settings.model.overrides.push_back(parse_override(argument, item));
  }
}

ScaledFile parse_scaled(const Argument& argument, const std::string& path, const std::string& scale) {
  constexpr double kMost = 1e6;
  if (path.empty()) bad_value(argument, "the name of a file and a scale");
  return {path, static_cast<float>(to_real(argument, scale, -kMost, kMost))};
}

/// Files with a factor: "FNAME:SCALE" as a comma list, or FNAME SCALE as two values.
template <class Get>
Apply scaled_files(Get get) {
  return [=](Target& target, const Argument& argument) {
    std::vector<ScaledFile>& files = get(target.settings);
    if (argument.values.size() == 2) {
      files.push_back(parse_scaled(argument, argument.values[0], argument.values[1]));
      return;
    }
    for (const std::string& item : split_list(argument.value())) {
      const std::size_t colon = item.rfind(':');
      if (colon == std::string::npos) bad_value(argument, "FNAME:SCALE, or FNAME SCALE");
      files.push_back(parse_scaled(argument, item.substr(0, colon), item.substr(colon + 1)));
    }
  };
}

/// The same at full scale.
template <class Get>
Apply whole_files(Get get) {
  return [=](Target& target, const Argument& argument) {
    for (const std::string& item : split_list(argument.value())) {
      if (item.empty()) bad_value(argument, "names of files");
      get(target.settings).push_back({item, 1.0f});
    }
  };
}

void apply_layer_range(Target& target, const Argument& argument) {
  const auto layer = [&](std::size_t i) {
    return static_cast<int>(to_integer(argument, argument.values[i], 0, kMaxInt));
  };
  target.settings.model.control_vector_layers = {layer(0), layer(1)};
}

std::vector<ScaledFile>& adapters_of(Settings& settings) {
  return settings.model.adapters;
}
std::vector<ScaledFile>& control_vectors_of(Settings& settings) {
  return settings.model.control_vectors;
}

void apply_model(Target& target, const Argument& argument) {
  if (argument.value().empty()) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: " + argument.name + ": the path of the model is empty",
                      "An unset variable between quotes gives such a word.");
  }
  target.settings.model.path = argument.value();
}

void apply_defer_experts(Target& target, const Argument&) {
  target.settings.model.warmup = false;
}

const std::vector<Option> kModelRows = {
    option({"-m", "--model"}, "FNAME", "GGUF file; of a split model the first part (...-00001-of-000NN.gguf).",
           apply_model)
        .variable("LLAMA_ARG_MODEL")
        .used_by(kModelLoaders),
    option({"-mu", "--model-url"}, "URL", "Download the model.")
        .variable("LLAMA_ARG_MODEL_URL")
        .used_by(kModelLoaders | kBench)
        .refused(kDownload, kDownloadAdvice),
    option({"-hf", "-hfr", "--hf-repo"}, "USER/MODEL[:QUANT]", "Download from a repository.")
        .variable("LLAMA_ARG_HF_REPO")
        .used_by(kModelLoaders | kBench)
        .refused(kDownload, kDownloadAdvice),
    option({"-hff", "--hf-file"}, "FILE", "File in that repository.")
        .variable("LLAMA_ARG_HF_FILE")
        .used_by(kModelLoaders | kBench)
        .refused(kDownload, kDownloadAdvice),
    option({"-hft", "--hf-token"}, "TOKEN", "Access token of that repository.")
        .used_by(kModelLoaders | kBench)
        .no_effect("nothing is downloaded"),
    option({"--docker-repo"}, "REPO", "Download from another registry.")
        .variable("LLAMA_ARG_DOCKER_REPO")
        .used_by(kModelLoaders | kBench)
        .refused(kDownload, kDownloadAdvice),
    option({"--offline"}, "", "Use no network.")
        .variable("LLAMA_ARG_OFFLINE")
        .used_by(kModelLoaders | kBench)
        .no_effect("nothing is downloaded"),
    option({"-cl", "--cache-list"}, "", "List downloaded models.")
        .used_by(kModelLoaders | kBench)
        .refused(kDownload, "look into the folder models/"),
    option({"-lm", "--load-mode"}, "MODE",
           "How weights come into memory: mmap, none (read into memory), mlock, mmap+mlock, dio (direct I/O) or auto.",
           apply_load_mode)
        .variable("LLAMA_ARG_LOAD_MODE")
        .initially("mmap"),
    option({"--mmap"}, "", "Map the file (on) or read it into memory (off).", apply_mmap)
        .negative({"--no-mmap"})
        .variable("LLAMA_ARG_MMAP")
        .initially("on"),
    option({"--mlock"}, "", "Keep the weights in memory; if the system refuses, a warning says how to raise the limit.",
           toggle([](Settings& s) -> auto& { return s.model.lock_memory; }))
        .variable("LLAMA_ARG_MLOCK")
        .initially("off"),
    option({"-dio", "--direct-io"}, "", "Read with O_DIRECT, past the page cache; implies --no-mmap.", apply_direct_io)
        .negative({"-ndio", "--no-direct-io"})
        .variable("LLAMA_ARG_DIO")
        .initially("off"),
    option({"--warmup"}, "", "Compute one dummy step after loading.",
           toggle([](Settings& s) -> auto& { return s.model.warmup; }))
        .negative({"--no-warmup"})
        .initially("on"),
    option({"--check-tensors"}, "",
           "Look for NaN and infinity in the weights while loading; finding one ends the load.",
           toggle([](Settings& s) -> auto& { return s.model.check_tensors; }))
        .initially("off"),
    option({"-vq", "--validate-quants"}, "", "Check quantised blocks while loading.",
           toggle([](Settings& s) -> auto& { return s.model.check_tensors; }))
        .initially("off"),
    option({"-okv", "--override-kv"}, "KEY=TYPE:VALUE", "Replace a metadata value; comma list, repeatable.",
           apply_overrides)
        .used_by(kModelLoaders | kQuantize | kBench)
        .list(),
    option(
        {"-rtr", "--run-time-repack", "--repack"}, "",
        "Repack the weights of the CPU to interleaved types while loading: a longer start without mmap, often faster "
        "generation. A GPU computes no prompts with repacked weights; a warning counts them.",
        toggle([](Settings& s) -> auto& { return s.model.repack; }))
        .negative({"-nr", "--no-repack"})
        .variable("LLAMA_ARG_REPACK")
        .initially("off"),
    option({"-thp", "--transparent-huge-pages"}, "", "Huge pages for mapped weights.")
        .no_effect("mapped files keep the pages that the kernel gives them"),
    option({"--defer-experts"}, "", "Do not touch mapped expert weights at load; implies --no-warmup.",
           apply_defer_experts)
        .used_by(kModelRunners | kBench)
        .initially("off"),
    option({"--prefetch-experts"}, "", "Read mapped expert weights ahead in the background.")
        .no_effect("the kernel reads ahead; --no-mmap reads all weights at the start"),
    option({"--prefetch-experts-threads"}, "N", "Threads of --prefetch-experts.")
        .no_effect("the kernel reads ahead; --no-mmap reads all weights at the start"),
    option({"-mea", "--max-extra-alloc"}, "N", "MiB of extra memory for tensors derived at load.")
        .no_effect("what is derived at load (merged tensors) has no bound of its own; the plan counts it"),
};

const std::vector<Option> kAdapterRows = {
    option({"--lora"}, "FNAME", "LoRA adapter; comma list, repeatable.", whole_files(adapters_of)).list(),
    option({"--lora-scaled"}, "FNAME:SCALE", "LoRA adapter with a scale; comma list, repeatable.",
           scaled_files(adapters_of))
        .takes(-1)
        .list(),
    option({"--lora-init-without-apply"}, "", "Adapters start with scale 0; requests and POST /lora-adapters set it.",
           toggle([](Settings& s) -> auto& { return s.model.adapters_start_at_zero; }))
        .used_by(kServer),
    option({"--control-vector"}, "FNAME", "Control vector; comma list, repeatable.", whole_files(control_vectors_of))
        .list(),
    option({"--control-vector-scaled"}, "FNAME:SCALE", "Control vector with a scale; comma list, repeatable.",
           scaled_files(control_vectors_of))
        .takes(-1)
        .list(),
    option({"--control-vector-layer-range"}, "FIRST LAST", "Layers that control vectors act on, both included.",
           apply_layer_range)
        .takes(2),
    option({"-mm", "--mmproj"}, "FILE", "Multimodal projector.")
        .variable("LLAMA_ARG_MMPROJ")
        .used_by(kGenerators)
        .refused(kMultimodal, kLeaveOut),
    option({"-mmu", "--mmproj-url"}, "URL", "Download the projector.")
        .variable("LLAMA_ARG_MMPROJ_URL")
        .used_by(kGenerators)
        .refused(kMultimodal, kLeaveOut),
    option({"--mmproj-auto"}, "", "Use the projector of the repository.")
        .negative({"--no-mmproj", "--no-mmproj-auto"})
        .variable("LLAMA_ARG_MMPROJ_AUTO")
        .used_by(kGenerators)
        .no_effect("there is no multimodal input"),
    option({"--mmproj-offload"}, "", "Projector on the GPU.")
        .negative({"--no-mmproj-offload"})
        .variable("LLAMA_ARG_MMPROJ_OFFLOAD")
        .used_by(kGenerators)
        .no_effect("there is no multimodal input"),
    option({"--audio", "--video", "--image"}, "FILE", "Image, audio or video file.")
        .list()
        .used_by(kCli)
        .refused(kMultimodal, kLeaveOut),
    option({"--image-min-tokens"}, "N", "Least number of tokens per image.")
        .variable("LLAMA_ARG_IMAGE_MIN_TOKENS")
        .used_by(kGenerators)
        .no_effect("there is no multimodal input"),
    option({"--image-max-tokens"}, "N", "Largest number of tokens per image.")
        .variable("LLAMA_ARG_IMAGE_MAX_TOKENS")
        .used_by(kGenerators)
        .no_effect("there is no multimodal input"),
    option({"--mtmd-batch-max-tokens"}, "N", "Batch of the multimodal encoder.")
        .variable("LLAMA_ARG_MTMD_BATCH_MAX_TOKENS")
        .used_by(kServer)
        .no_effect("there is no multimodal input"),
    option({"-tm", "--threads-mtmd"}, "N", "Threads of the multimodal encoder.")
        .used_by(kGenerators)
        .no_effect("there is no multimodal input"),
    option({"--mtmd-kq-type"}, "T", "Precision of the multimodal encoder.")
        .used_by(kGenerators)
        .no_effect("there is no multimodal input"),
};

}  // namespace

void add_model_options(std::vector<Option>& table) {
  for (Option row : kModelRows) {
    row.group = kModel;
    table.push_back(std::move(row));
  }
  for (Option row : kAdapterRows) {
    row.group = kAdapters;
    table.push_back(std::move(row));
  }
}

}  // namespace common
