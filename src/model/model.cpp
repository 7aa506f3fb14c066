#include "llama/model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "llama/plan.h"
#include "model/adapters.h"
#include "model/derived_weights.h"
#include "model/family.h"
#include "model/hparams.h"
#include "model/key_reader.h"
#include "model/kv_override.h"
#include "model/merged_tensors.h"
#include "model/model_text.h"
#include "model/repacking.h"
#include "model/weight_loader.h"
#include "model/weight_places.h"
#include "model/weights.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;

struct Model::Impl {
  /// Reads the file's headers: all that is known without its weights, but for the vocabulary.
  ggml::gguf::File open(const ModelParams& params);
  /// Makes an outline's weights anew, those merged that the plan lets be merged, and adds these to the plan.
  void merge_outline(Plan& plan);

  /// What an outline's weights are made from when some are to be merged.
  struct Mergeable {
    ModelParams params;
    ggml::gguf::File file;           // which `found` points into
    std::vector<TensorMatch> found;  // in the order of the file
  };
  std::string path;
  ModelInfo info;
  ggml::gguf::Metadata metadata;
  std::optional<Vocab> vocab;
  Hparams hparams;
  const Family* family = nullptr;
  ModelWeights weights;
  // Of an outline: weights that plans name, and those that are tensors of the file. Merged and derived ones follow,
  // then what other files add.
  std::size_t n_outlined = 0, n_in_file = 0;
  std::optional<Mergeable> mergeable;
  bool repack = false;  // of an outline
  std::vector<AdapterInfo> adapters;
};

namespace {

const Family& family_of(const ggml::gguf::Metadata& metadata, const std::string& path) {
  const std::optional<std::string_view> arch = metadata.get_string("general.architecture");
  if (!arch) throw Error(ErrorCode::invalid_file, path + ": the key general.architecture is missing");
  if (const Family* family = find_family(*arch)) return *family;
  std::string known;
  for (const std::string_view name : family_names()) known += (known.empty() ? "" : ", ") + std::string(name);
  const std::string what =
      path + ": architecture " + ggml::gguf::quoted(*arch) +
      (is_known_unsupported(*arch) ? " is known, but not supported by this version" : " is not known");
  throw Error(ErrorCode::unsupported, what, "supported are: " + known);
}

Hparams read_hparams(const ggml::gguf::Metadata& metadata, const Family& family, const std::string& path) {
  KeyReader keys(metadata, std::string(family.arch), path);
  const ggml::gguf::Array* tokens = metadata.get_array("tokenizer.ggml.tokens");
  Hparams hparams;
  hparams.arch = family.arch;
  read_generic_hparams(keys, tokens != nullptr ? static_cast<int>(tokens->size()) : 0, hparams);
  family.hparams(keys, hparams);
  keys.finish();
  return hparams;
}

void warn_unused(const std::vector<std::string>& names, const std::string& path) {
  constexpr std::size_t kShown = 5;
  if (names.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) list += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kShown) list += ", ...";
  ggml::logf(ggml::LogLevel::warn, "%s: %zu tensors are not used: %s", path.c_str(), names.size(), list.c_str());
}

/// Throws one Error with everything that is wrong with the file's tensors.
SchemaMatch checked_tensors(const ggml::gguf::File& file, const Family& family, const Hparams& hparams,
                            const std::string& path) {
  SchemaMatch match = match_schema(file, family.tensors, hparams);
  if (!match.problems.empty())
    for (const std::string& name : match.unused) match.problems.push_back(name + ": not expected in this architecture");
  if (!match.problems.empty())
    throw Error(ErrorCode::invalid_file, list_problems(path, match.problems),
                "the file is damaged or was made for another version of its architecture");
  warn_unused(match.unused, path);
  if (match.n_skipped > 0)
    ggml::logf(
        ggml::LogLevel::info,
        "skipped blocks=%d tensors=%d bytes=%llu reason=\"they predict further tokens, which this version does not "
        "use\"",
        hparams.n_layer_all - hparams.n_layer, match.n_skipped, static_cast<unsigned long long>(match.skipped_bytes));
  return match;
}

ModelInfo describe(const ggml::gguf::File& file, const Hparams& hparams) {
  ModelInfo info;
  const ggml::gguf::Metadata& metadata = file.metadata();
  info.architecture = hparams.arch;
  info.name = metadata.get_string("general.name").value_or("");
  std::uint64_t n_active = 0;
  for (const ggml::gguf::TensorInfo& tensor : file.tensors()) {
    const auto n = static_cast<std::uint64_t>(tensor.shape.elements());
    const bool expert = tensor.name.find("_exps.") != std::string::npos && hparams.has_experts();
    info.n_params += n;
    info.file_bytes += tensor.bytes;
    n_active += expert ? n / static_cast<std::uint64_t>(hparams.experts.count) *
                             static_cast<std::uint64_t>(hparams.experts.used)
                       : n;
  }
  info.size_label = size_label(info.n_params, n_active);
  const std::optional<std::uint32_t> file_type = metadata.get_u32("general.file_type");
  info.file_type = file_type ? file_type_text(*file_type) : "unknown";
  info.n_layer = hparams.n_layer;
  info.n_embd = hparams.n_embd;
  info.n_vocab = hparams.n_vocab;
  info.n_ctx_train = hparams.n_ctx_train;
  info.n_expert = hparams.experts.count;
  info.n_expert_used = hparams.experts.used;
  info.is_encoder = hparams.is_encoder;
  info.pooling = hparams.pooling;
  return info;
}

}  // namespace

ggml::gguf::File Model::Impl::open(const ModelParams& params) {
  path = params.path;
  ggml::gguf::File file = ggml::gguf::File::open(path);
  apply_overrides(params.kv_overrides, file.metadata());
  family = &family_of(file.metadata(), path);
  hparams = read_hparams(file.metadata(), *family, path);
  info = describe(file, hparams);
  return file;
}

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;

std::unique_ptr<Model> Model::load(const ModelParams& params, ggml::Device& device, const LoadProgress& progress) {
  ggml::Device* const one[] = {&device};
  return load(params, one, Plan{}, progress);
}

std::unique_ptr<Model> Model::load(const ModelParams& params, std::span<ggml::Device* const> devices, const Plan& plan,
                                   const LoadProgress& progress) {
  check_plan(plan, devices.size());
  std::unique_ptr<Model> model(new Model);
  Impl& impl = *model->impl_;
  ggml::gguf::File file = impl.open(params);
  impl.vocab.emplace(Vocab::load(file.metadata(), params.path));
  if (!params.vocab_only) {
    SchemaMatch match = checked_tensors(file, *impl.family, impl.hparams, params.path);
    Plan with_merged = plan;
    const std::vector<MergedTensor> merged = merge_tensors(params, impl.family->tensors, match.found, with_merged);
    impl.weights.layers.resize(static_cast<std::size_t>(impl.hparams.n_layer));
    const LoadTarget target{devices, with_merged, impl.hparams, merged};
    load_weights(file, match.found, params, target, progress, impl.weights);
    impl.adapters = load_additions(params, target, impl.weights);
  }
  impl.metadata = std::move(file.metadata());
  const ModelInfo& info = impl.info;
  ggml::logf(ggml::LogLevel::info, "model arch=%s size=%s type=\"%s\" params=%llu weight_bytes=%llu layers=%d",
             info.architecture.c_str(), info.size_label.c_str(), info.file_type.c_str(),
             static_cast<unsigned long long>(info.n_params), static_cast<unsigned long long>(info.file_bytes),
             info.n_layer);
  return model;
}

std::unique_ptr<Model> Model::outline(const ModelParams& params) {
  std::unique_ptr<Model> model(new Model);
  Impl& impl = *model->impl_;
  ggml::gguf::File file = impl.open(params);
  SchemaMatch match = match_schema(file, impl.family->tensors, impl.hparams);
  if (!match.problems.empty()) throw Error(ErrorCode::invalid_file, list_problems(params.path, match.problems));
  // Matches point into the file's list, which is in its order.
  std::stable_sort(match.found.begin(), match.found.end(),
                   [](const TensorMatch& a, const TensorMatch& b) { return a.info < b.info; });
  impl.weights.layers.resize(static_cast<std::size_t>(impl.hparams.n_layer));
  outline_weights(match.found, {}, impl.weights);
  outline_derived_weights(impl.hparams, impl.weights);
  impl.adapters = outline_additions(params, impl.hparams, impl.weights);
  impl.n_outlined = impl.weights.tensors.size();
  impl.n_in_file = match.found.size();
  impl.metadata = std::move(file.metadata());
  impl.repack = params.repack;
  if (may_merge(params)) impl.mergeable = {params, std::move(file), std::move(match.found)};
  return model;
}

void Model::Impl::merge_outline(Plan& plan) {
  std::vector<TensorMatch> found = mergeable->found;
  const std::vector<MergedTensor> merged = merge_tensors(mergeable->params, family->tensors, found, plan);
  weights = {};
  weights.layers.resize(static_cast<std::size_t>(hparams.n_layer));
  outline_weights(found, merged, weights);
  n_in_file = found.size();
  outline_derived_weights(hparams, weights);
  adapters = outline_additions(mergeable->params, hparams, weights);
}

std::vector<std::vector<std::string>> Model::merge_groups() const {
  if (!impl_->mergeable) return {};
  return llama::merge_groups(impl_->mergeable->params, impl_->family->tensors, impl_->mergeable->found);
}

void Model::place_outline(const Plan& given) {
  TANDEM_ASSERT(given.tensors.size() == impl_->n_outlined, "the plan was made from another model");
  Plan plan = given;
  if (impl_->mergeable) impl_->merge_outline(plan);
  const WeightPlaces places(plan, impl_->weights);
  if (impl_->repack) {
    Repacking repacking(places, impl_->weights);
    for (ggml::Weight& weight : impl_->weights.tensors) repacking.declare(weight);
  }
  const bool mapped = std::any_of(plan.tensors.begin(), plan.tensors.end(), [](const TensorPlan& tensor) {
    return !tensor.places.empty() && tensor.places.front().kind == ggml::BufferKind::mapping;
  });
  const std::size_t first_derived = impl_->n_in_file + plan.tensors.size() - impl_->n_outlined;
  std::size_t i = 0;
  for (ggml::Weight& weight : impl_->weights.tensors) {
    weight.placements.clear();
    const std::vector<ggml::DeviceId>& devices = places.of(weight);
    const bool has_pages = mapped && i < impl_->n_in_file;
    const bool is_derived = i++ >= first_derived;
    const ggml::BufferKind on_host = has_pages ? ggml::BufferKind::mapping : ggml::BufferKind::host_pageable;
    // The loader leaves the pages of the file, which the CPU can fall back on, and what it made in host memory.
    const bool planned = std::find(devices.begin(), devices.end(), ggml::DeviceId(0)) != devices.end();
    if (!planned && (has_pages || is_derived || places.is_read_by_host(weight))) {
      ggml::Placement& host = weight.placements.emplace_back();
      host.kind = on_host;
      host.role = ggml::PlacementRole::cache;
    }
    for (const ggml::DeviceId device : devices) {
      ggml::Placement& placement = weight.placements.emplace_back();
      placement.device = device;
      placement.kind = device.v == 0 ? on_host : ggml::BufferKind::device;
    }
  }
}

const ModelInfo& Model::info() const {
  return impl_->info;
}
const Vocab& Model::vocab() const {
  return *impl_->vocab;
}
const ggml::gguf::Metadata& Model::metadata() const {
  return impl_->metadata;
}
const Hparams& Model::hparams() const {
  return impl_->hparams;
}
const ModelWeights& Model::weights() const {
  return impl_->weights;
}
const std::vector<AdapterInfo>& Model::adapters() const {
  return impl_->adapters;
}

std::vector<std::string_view> known_architectures() {
  return family_names();
}

}  // namespace llama
