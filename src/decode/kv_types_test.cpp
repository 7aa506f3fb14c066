#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "llama/context.h"
#include "llama/plan.h"
#include "model/hparams.h"
#include "models/golden.h"
#include "models/simulated_machine.h"

/// Whole models with every type of keys and values, and with the Hadamard transform of heads.
namespace llama::golden {
namespace {

using ggml::DType;

std::vector<DType> kv_types() {
  std::vector<DType> types;
  for (int i = 0; i < ggml::kTypeCount; ++i)
    if (ggml::type_info(static_cast<DType>(i)).kv_capable) types.push_back(static_cast<DType>(i));
  return types;
}

std::string name_of(DType type) {
  return std::string(ggml::type_info(type).id);
}

ContextParams context_params(DType k, DType v) {
  ContextParams params;
  params.n_ctx = 512;
  params.n_batch = params.n_ubatch = 64;
  params.n_seq_max = 3;
  params.k_type = k;
  params.v_type = v;
  return params;
}

/// How far logits may be from those of an F32 cache, as a share of their own root mean square. The most that was
/// measured over the models of this file, whose weights are all F32 (rounded activations would add their own): 0.0007
/// for F16, 0.006 for BF16, 0.011, 0.04, 0.1 and 0.18 for 8, 6, 5 and 4 bits.
double bound_of(DType type) {
  const ggml::KvForm form = ggml::kv_form(type);
  if (!form.quantised) return type == DType::f32 ? 1e-5 : type == DType::f16 ? 1e-3 : 8e-3;
  return form.bits == 8 ? 0.02 : form.bits == 6 ? 0.06 : form.bits == 5 ? 0.15 : 0.25;
}

class KvTypes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = load(GetParam());
    if (golden_ == nullptr) GTEST_SKIP() << "no golden file";
    ggml::CpuOptions options;
    options.n_threads = 2;
    device_ = ggml::make_cpu_device(options);
    ModelParams params;
    params.path = golden_->path;
    model_ = Model::load(params, *device_, {});
  }

  [[nodiscard]] Rows run(const ContextParams& params) const {
    Context context(*model_, *device_, params);
    Rows rows(kRows);
    run_chunks(context, *golden_, rows);
    context.check_integrity();
    return rows;
  }

  std::unique_ptr<Golden> golden_;
  std::unique_ptr<ggml::Device> device_;
  std::unique_ptr<Model> model_;
};

/// Root mean square of the differences over that of `b`.
double distance(const Rows& a, const Rows& b) {
  double difference = 0, size = 0;
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t i = 0; i < a[r].size(); ++i) {
      difference += std::pow(static_cast<double>(a[r][i]) - static_cast<double>(b[r][i]), 2);
      size += std::pow(static_cast<double>(b[r][i]), 2);
    }
  return std::sqrt(difference / size);
}

TEST_P(KvTypes, GiveTheLogitsOfAnF32CacheWithinTheirOwnBounds) {
  const Rows exact = run(context_params(DType::f32, DType::f32));
  for (const DType k : kv_types())
    for (const DType v : kv_types()) {
      // Each type of K with itself, and with both ends of the list for the other.
      if (k != v && k != DType::f32 && v != DType::f32) continue;
      const double bound = std::hypot(bound_of(k), bound_of(v));
      EXPECT_LE(distance(run(context_params(k, v)), exact), bound) << name_of(k) << " and " << name_of(v);
    }
}

TEST_P(KvTypes, TransformedHeadsOfAnF32CacheChangeNothing) {
  const Rows exact = run(context_params(DType::f32, DType::f32));
  for (const bool flash : {true, false})
    for (const bool v : {false, true}) {
      ContextParams params = context_params(DType::f32, DType::f32);
      params.flash_attention = flash;
      params.k_hadamard = true;
      params.v_hadamard = v;
      EXPECT_LE(distance(run(params), exact), 1e-5);
    }
}

TEST_P(KvTypes, QuantisedKeysNeedNoFlashAttention) {
  for (const DType k : kv_types()) {
    ContextParams params = context_params(k, DType::f32);
    const Rows flash = run(params);
    params.flash_attention = false;
    // Values that differ in their last bit may end on the other side of an edge between two codes.
    const double bound = k == DType::f32 ? 1e-5 : bound_of(k) / 10 + 1e-3;
    EXPECT_LE(distance(run(params), flash), bound) << name_of(k);
  }
}

TEST_P(KvTypes, CountTheirBytesExactly) {
  for (const DType k : kv_types()) {
    const Context context(*model_, *device_, context_params(k, DType::q4_1));
    std::uint64_t bytes = 0;
    for (const LayerHparams& layer : model_->hparams().layers) {
      if (layer.window_kind != ggml::WindowKind::none) continue;  // keeps not every token
      const auto heads = static_cast<std::uint64_t>(layer.n_head_kv);
      const std::uint64_t header = ggml::kv_form(k).row_bytes > 0 ? 4 : 0;  // a file's has a sum beside the scale
      bytes += heads * (ggml::row_bytes(k, layer.dk) - header + ggml::row_bytes(DType::q4_1, layer.dv));
    }
    EXPECT_EQ(context.stats().kv_bytes_per_token, bytes) << name_of(k);
  }
}

/// Feeds tokens to one sequence; the logits of its last row.
std::vector<float> feed(Context& context, SeqId seq, std::span<const Token> tokens) {
  const StepSequence s{seq, tokens, Outputs::last, nullptr};
  const StepResult& result = context.run({{&s, 1}});
  return {result.sequences[0].logits.begin(), result.sequences[0].logits.end()};
}

TEST_P(KvTypes, SharedCutAndContinuedSequencesGiveWhatFreshOnesGive) {
  const std::span<const Token> prompt(golden_->prompt);
  for (const DType type : kv_types()) {
    ContextParams params = context_params(type, type);
    params.k_hadamard = params.v_hadamard = true;
    Context context(*model_, *device_, params);
    const SeqId fresh = context.create_sequence();
    (void)feed(context, fresh, prompt.first(40));
    const std::vector<float> expected = feed(context, fresh, prompt.subspan(40, 4));
    context.remove_sequence(fresh);
    // The same after a detour: other tokens were appended, by another sequence that shares the beginning and by this
    // one, which is cut back to it.
    const SeqId a = context.create_sequence(), b = context.create_sequence();
    (void)feed(context, a, prompt.first(40));
    context.share_prefix(b, a, 40);
    (void)feed(context, b, prompt.first(20));
    (void)feed(context, a, prompt.subspan(5, 8));
    context.truncate(a, 40);
    context.check_integrity();
    EXPECT_EQ(feed(context, a, prompt.subspan(40, 4)), expected) << name_of(type);
    context.truncate(b, 40);
    EXPECT_EQ(feed(context, b, prompt.subspan(40, 4)), expected) << name_of(type);
    context.check_integrity();
  }
}

TEST_P(KvTypes, AShiftedSequenceIsNearlyThatOfAnF32Cache) {
  // What is left of a sequence differs from a fresh one in its values, so the F32 cache is the measure.
  const std::span<const Token> prompt(golden_->prompt);
  const auto shifted = [&](const ContextParams& params) {
    Context context(*model_, *device_, params);
    const SeqId seq = context.create_sequence();
    (void)feed(context, seq, prompt.first(40));
    context.shift(seq, 4, 10);
    context.check_integrity();
    return Rows{feed(context, seq, prompt.subspan(40, 4))};
  };
  const Rows exact = shifted(context_params(DType::f32, DType::f32));
  for (const DType type : kv_types())
    for (const bool hadamard : {false, true}) {
      ContextParams params = context_params(type, type);
      params.k_hadamard = params.v_hadamard = hadamard;
      EXPECT_LE(distance(shifted(params), exact), 3 * bound_of(type)) << name_of(type) << ", " << hadamard;
    }
}

TEST_P(KvTypes, StayOnTheCpuWhereACardHasNoKernelsForThem) {
  for (const bool hadamard : {false, true}) {
    const SimulatedMachine machine({.n_cards = 1, .lacks = {hadamard ? "hadamard" : "q5_0"}});
    const Plan plan = SimulatedMachine::all_on(1, model_->info().n_layer);
    ModelParams model_params;
    model_params.path = golden_->path;
    model_params.load_mode = LoadMode::read;
    const auto model = Model::load(model_params, machine.devices(), plan, {});
    for (const DType v : {DType::q8_0, DType::q5_0}) {
      ContextParams params = context_params(DType::q6_0, v);
      params.k_hadamard = params.v_hadamard = hadamard;
      const std::uint64_t free = machine.devices()[1]->memory().free;
      Context context(*model, machine.devices(), plan, params);
      const std::uint64_t used = free - machine.devices()[1]->memory().free;
      const bool on_card = !hadamard && v != DType::q5_0;
      EXPECT_EQ(used >= context.stats().kv_total_bytes + context.stats().arena_bytes, on_card) << used;
      Rows rows(kRows);
      run_chunks(context, *golden_, rows);
      EXPECT_LE(distance(rows, run(params)), 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KvTypes, testing::Values("llama", "gemma3", "qwen2", "qwen3"), test_name);

class RefusedKvTypes : public testing::Test {
 protected:
  /// The message, or "" when the context was made.
  static std::string refusal(const char* name, const ContextParams& params) {
    const std::unique_ptr<Golden> golden = load(name);
    if (golden == nullptr) return "no golden file";
    const std::unique_ptr<ggml::Device> device = ggml::make_cpu_device({});
    ModelParams model_params;
    model_params.path = golden->path;
    const auto model = Model::load(model_params, *device, {});
    try {
      const Context context(*model, *device, params);
      return {};
    } catch (const ggml::Error& error) {
      return error.message();
    }
  }
};

TEST_F(RefusedKvTypes, AreNamedWithTheReason) {
  EXPECT_EQ(refusal("llama", context_params(DType::q4_k, DType::f16)), "K cache of type q4_k is not possible");
  EXPECT_EQ(refusal("llama", context_params(DType::f16, DType::i32)), "V cache of type i32 is not possible");
  ContextParams params = context_params(DType::f16, DType::iq4_nl);
  params.flash_attention = false;
  EXPECT_EQ(refusal("llama", params), "a V cache of type iq4_nl needs flash attention");
}

TEST_F(RefusedKvTypes, HeadsThatAreNoWholeBlocksSayTheirSize) {
  if (load("deepseek2-lite") == nullptr) GTEST_SKIP() << "no golden file";
  ContextParams params = context_params(DType::f16, DType::q8_0);
  params.mla = 0;
  EXPECT_EQ(refusal("deepseek2-lite", params),
            "V cache of type q8_0 keeps blocks of 32 elements, which heads of 16 are not");
  params = context_params(DType::f16, DType::f16);
  params.v_hadamard = true;
  EXPECT_NE(refusal("deepseek2-lite", params).find("no form for latent attention"), std::string::npos);
}

}  // namespace
}  // namespace llama::golden
