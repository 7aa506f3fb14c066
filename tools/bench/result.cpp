#include "result.h"

#include <algorithm>
#include <cmath>

#include "ggml/log.h"

namespace bench {

using ggml::strf;

namespace {

std::string number(double value) {
  return strf("%f", value);
}
std::string integer(std::uint64_t value) {
  return strf("%llu", static_cast<unsigned long long>(value));
}

std::vector<double> as_doubles(const std::vector<std::uint64_t>& values) {
  return {values.begin(), values.end()};
}

std::string flag(bool value) {
  return value ? "1" : "0";
}

/// "0x5" for the CPUs 0 and 2; "0x0" where none is named.
std::string mask_text(const std::vector<int>& cpus) {
  const int highest = cpus.empty() ? 0 : *std::max_element(cpus.begin(), cpus.end());
  std::string digits(static_cast<std::size_t>(highest) / 4 + 1, '0');
  for (std::size_t digit = 0; digit < digits.size(); ++digit) {
    int bits = 0;
    for (const int cpu : cpus)
      if (static_cast<std::size_t>(cpu) / 4 == digit) bits |= 1 << (cpu % 4);
    digits[digits.size() - 1 - digit] = "0123456789abcdef"[bits];
  }
  return "0x" + digits;
}

/// "6,1"
std::string reduction_text(const std::pair<int, float>& reduction) {
  return strf("%d,%g", reduction.first, static_cast<double>(reduction.second));
}

std::string type_name(ggml::DType type) {
  return std::string(ggml::type_info(type).id);
}

}  // namespace

std::vector<double> Result::tokens_per_second() const {
  std::vector<double> rates;
  const int n = test.prompt_is_untimed ? test.n_gen : test.n_prompt + test.n_gen;
  for (const std::uint64_t ns : samples_ns) rates.push_back(ns > 0 ? 1e9 * n / static_cast<double>(ns) : 0.0);
  return rates;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0.0;
  const double m = mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

namespace {

using R = const Result&;

const std::vector<Field> kFields = {
    {"build_commit", FieldType::text, [](R r) { return r.subject.build_commit; }},
    {"build_number", FieldType::integer, [](R r) { return std::to_string(r.subject.build_number); }},
    {"cpu_info", FieldType::text, [](R r) { return r.subject.cpu_info; }},
    {"gpu_info", FieldType::text, [](R r) { return r.run.gpu_info; }},
    {"backends", FieldType::text, [](R r) { return r.run.backends; }},
    {"model_filename", FieldType::text, [](R r) { return r.test.model; }},
    {"model_type", FieldType::text, [](R r) { return r.subject.model_type; }},
    {"model_size", FieldType::integer, [](R r) { return integer(r.subject.model_size); }},
    {"model_n_params", FieldType::integer, [](R r) { return integer(r.subject.model_n_params); }},
    {"n_batch", FieldType::integer, [](R r) { return std::to_string(r.test.n_batch); }},
    {"n_ubatch", FieldType::integer, [](R r) { return std::to_string(r.test.n_ubatch); }},
    {"n_threads", FieldType::integer, [](R r) { return std::to_string(r.test.n_threads); }},
    {"cpu_mask", FieldType::text, [](R r) { return mask_text(r.test.cpus); }},
    {"cpu_strict", FieldType::boolean, [](R r) { return std::to_string(r.test.cpu_strict); }},
    {"poll", FieldType::integer, [](R r) { return std::to_string(r.test.poll); }},
    {"type_k", FieldType::text, [](R r) { return type_name(r.test.type_k); }},
    {"type_v", FieldType::text, [](R r) { return type_name(r.test.type_v); }},
    {"n_gpu_layers", FieldType::integer, [](R r) { return std::to_string(r.test.n_gpu_layers); }},
    {"n_cpu_moe", FieldType::integer, [](R r) { return std::to_string(r.test.n_cpu_moe); }},
    {"split_mode", FieldType::text, [](R r) { return r.run.split_mode; }},
    {"main_gpu", FieldType::integer, [](R r) { return std::to_string(r.run.main_gpu); }},
    {"no_kv_offload", FieldType::boolean, [](R r) { return flag(r.run.no_kv_offload); }},
    {"flash_attn", FieldType::integer, [](R r) { return std::to_string(static_cast<int>(r.test.flash_attention)); }},
    {"devices", FieldType::text, [](R r) { return r.run.devices; }},
    {"tensor_split", FieldType::text, [](R r) { return r.run.tensor_split; }},
    {"tensor_buft_overrides", FieldType::text,
     [](R r) { return r.test.tensor_rules.empty() ? std::string("none") : r.test.tensor_rules; }},
    {"load_mode", FieldType::text, [](R r) { return std::string(load_mode_name(r.test.load_mode)); }},
    {"embeddings", FieldType::boolean, [](R) { return std::string("0"); }},
    {"no_op_offload", FieldType::integer, [](R r) { return flag(r.run.no_op_offload); }},
    {"no_host", FieldType::boolean, [](R) { return std::string("0"); }},
    {"fit_target", FieldType::integer, [](R r) { return std::to_string(r.run.fit_target); }},
    {"fit_min_ctx", FieldType::integer, [](R r) { return std::to_string(r.run.fit_min_ctx); }},
    {"n_prompt", FieldType::integer, [](R r) { return std::to_string(r.test.n_prompt); }},
    {"n_gen", FieldType::integer, [](R r) { return std::to_string(r.test.n_gen); }},
    {"n_depth", FieldType::integer, [](R r) { return std::to_string(r.test.n_depth); }},
    {"test_time", FieldType::text, [](R r) { return r.test_time; }},
    {"avg_ns", FieldType::integer, [](R r) { return strf("%.0f", mean(as_doubles(r.samples_ns))); }},
    {"stddev_ns", FieldType::integer, [](R r) { return strf("%.0f", deviation(as_doubles(r.samples_ns))); }},
    {"avg_ts", FieldType::number, [](R r) { return number(mean(r.tokens_per_second())); }},
    {"stddev_ts", FieldType::number, [](R r) { return number(deviation(r.tokens_per_second())); }},
    {"n_threads_batch", FieldType::integer, [](R r) { return std::to_string(r.test.n_threads_batch); }},
    {"mla_attn", FieldType::integer, [](R r) { return std::to_string(r.test.mla); }},
    {"attn_max_batch", FieldType::integer, [](R r) { return std::to_string(r.test.attention_max_batch_mib); }},
    {"ser", FieldType::text, [](R r) { return reduction_text(r.test.expert_reduction); }},
    {"reuse", FieldType::boolean, [](R r) { return flag(r.run.graph_reuse); }},
    {"mqkv", FieldType::boolean, [](R r) { return flag(r.run.merge_qkv); }},
    {"muge", FieldType::boolean, [](R r) { return flag(r.run.merge_up_gate); }},
    {"rtr", FieldType::boolean, [](R r) { return flag(r.run.repack); }},
    {"fused_moe", FieldType::boolean, [](R r) { return flag(r.run.fused_moe); }},
    {"no_fused_up_gate", FieldType::boolean, [](R r) { return flag(r.run.no_fused_up_gate); }},
    {"no_fused_sum", FieldType::boolean, [](R r) { return flag(r.run.no_fused_sum); }},
    {"no_ooae", FieldType::boolean, [](R r) { return flag(r.run.no_ooae); }},
    {"cpu_moe", FieldType::boolean, [](R r) { return flag(r.run.cpu_moe); }},
    {"k_hadamard", FieldType::boolean, [](R r) { return flag(r.run.k_hadamard); }},
    {"v_hadamard", FieldType::boolean, [](R r) { return flag(r.run.v_hadamard); }},
    {"cpu_moe_blocks", FieldType::text, [](R r) { return r.test.experts_on_cpu(); }},
};

}  // namespace

const std::vector<Field>& fields() {
  return kFields;
}

}  // namespace bench
