#include "models/adapter_fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ggml/cpu.h"
#include "ggml/error.h"

namespace llama::golden {

AdapterFixture::AdapterFixture() {
  ggml::CpuOptions options;
  options.n_threads = 1;  // allocations are counted on one thread
  device_ = ggml::make_cpu_device(options);
}

void AdapterFixture::use(const std::string& name) {
  golden_ = golden::load(name);
  if (golden_ == nullptr) return;
  base_.emplace(golden_->path);
  base_->coarsen(adaptable(*base_));
  base_path_ = base_->write(dir_.path() / "base.gguf");
}

std::unique_ptr<Model> AdapterFixture::load(const std::string& path, std::vector<std::string> adapters) const {
  ModelParams params;
  params.path = path;
  params.adapters = std::move(adapters);
  return load(params);
}

std::string AdapterFixture::problem(const ModelParams& params) const {
  try {
    (void)load(params);
  } catch (const ggml::Error& error) {
    return error.message();
  }
  return {};
}

Rows AdapterFixture::pair(const Model& model, ggml::Device& device, const ContextParams& params) const {
  Context context(model, device, params);
  Rows rows(kRows);
  run_pair(context, *golden_, rows);
  return rows;
}

std::vector<Rows> AdapterFixture::all_cases(Context& context) const {
  std::vector<Rows> cases(3, Rows(kRows));
  run_batch(context, *golden_, cases[0]);
  run_chunks(context, *golden_, cases[1]);
  run_pair(context, *golden_, cases[2]);
  return cases;
}

std::vector<Rows> AdapterFixture::all_cases(const Model& model, ggml::Device& device,
                                            const ContextParams& params) const {
  Context context(model, device, params);
  return all_cases(context);
}

ContextParams small_context(std::vector<float> scales) {
  ContextParams params;
  params.n_ctx = 512;
  params.n_batch = params.n_ubatch = 64;
  params.n_seq_max = 4;
  params.k_type = params.v_type = ggml::DType::f32;
  params.adapter_scales = std::move(scales);
  return params;
}

double distance(const Rows& a, const Rows& b) {
  double worst = 0;
  for (std::size_t row = 0; row < a.size(); ++row) {
    if (a[row].size() != b[row].size()) return std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < a[row].size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(a[row][i]) - static_cast<double>(b[row][i])));
  }
  return worst;
}

double distance(const std::vector<Rows>& a, const std::vector<Rows>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, distance(a[i], b[i]));
  return worst;
}

double size_of(const Rows& rows) {
  double size = 0;
  for (const std::vector<float>& row : rows)
    for (const float v : row) size = std::max(size, std::fabs(static_cast<double>(v)));
  return size;
}

}  // namespace llama::golden
