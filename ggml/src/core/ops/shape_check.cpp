#include "shape_check.h"

#include <algorithm>

#include "ggml/log.h"

namespace ggml::shape_check {

namespace {

std::string node_name(const OpInputs& in) {
  return in.name.empty() ? std::string("(unnamed)") : std::string(in.name);
}

[[noreturn]] void refuse(const OpInputs& in, const std::string& what) {
  throw Error(ErrorCode::invalid_file, node_name(in) + ": " + what,
              "the model file does not have the shapes its own metadata promise; it may be damaged or of an "
              "architecture variant that is not supported");
}

[[noreturn]] void our_fault(const OpInputs& in, const std::string& what) {
  throw Error(ErrorCode::internal, node_name(in) + ": " + what);
}

std::string described(const Tensor& tensor) {
  return strf("%s (%s)", tensor.shape.text().c_str(), tensor.name.c_str());
}

std::string extent(std::int64_t n) {
  return n == kAny ? std::string("any") : std::to_string(n);
}

void expect_f32(const OpInputs& in, const Tensor& tensor, const std::string& role) {
  if (tensor.type != DType::f32)
    refuse(in, strf("%s %s is %s, expected F32", role.c_str(), tensor.name.c_str(),
                    std::string(type_info(tensor.type).name).c_str()));
}

const Tensor& operand(const OpInputs& in, TensorId id, const char* role) {
  if (!id.valid() || static_cast<std::size_t>(id.v) >= in.graph.tensors.size())
    our_fault(in, strf("%s is missing (tensor %d of %zu)", role, id.v, in.graph.tensors.size()));
  return in.graph.at(id);
}

const Slot& slot(const OpInputs& in, std::size_t i, const char* role) {
  if (i >= in.slots.size()) our_fault(in, strf("slot %s is missing (%zu of %zu)", role, i, in.slots.size()));
  return in.slots[i];
}

/// Pre: the slot's weight is checked.
void check_adapters(const OpInputs& in, const Slot& s, const std::string& role, const MatrixSpec& spec) {
  const Shape w = operand(in, s.weight, role.c_str()).shape;
  for (const SlotAdapter& adapter : s.adapters) {
    const std::string what = strf("adapter of slot %s", role.c_str());
    const Tensor& a = operand(in, adapter.a, what.c_str());
    const Tensor& b = operand(in, adapter.b, what.c_str());
    const std::int64_t rank = b.shape[0];
    expect_shape(in, a, what, spec.is_table ? Shape(rank, w[1]) : Shape(w[0], rank, w[2]));
    expect_shape(in, b, what, spec.is_table ? Shape(rank, w[0]) : Shape(rank, w[1], w[2]));
    if (a.type == DType::i32 || b.type == DType::i32) our_fault(in, what + " is I32: integers are no weights");
    const Tensor& scales = operand(in, adapter.scales, what.c_str());
    expect_f32(in, scales, what);
    if (scales.shape[0] != 1 || scales.shape.elements() != scales.shape[1])
      our_fault(in, strf("factors of an %s are %s, expected 1 x rows", what.c_str(), described(scales).c_str()));
  }
}

}  // namespace

void expect_counts(const OpInputs& in, std::size_t min_src, std::size_t max_src, std::size_t slots) {
  if (in.src.size() < min_src || in.src.size() > max_src)
    our_fault(in, strf("%zu sources, expected %zu to %zu", in.src.size(), min_src, max_src));
  if (in.slots.size() != slots) our_fault(in, strf("%zu slots, expected %zu", in.slots.size(), slots));
}

const Tensor& source(const OpInputs& in, std::size_t i, const char* role) {
  if (i >= in.src.size()) our_fault(in, strf("source %s is missing (%zu of %zu)", role, i, in.src.size()));
  return operand(in, in.src[i], role);
}

const Tensor& values(const OpInputs& in, std::size_t i, const char* role) {
  const Tensor& tensor = source(in, i, role);
  expect_f32(in, tensor, role);
  return tensor;
}

const Tensor& integers(const OpInputs& in, std::size_t i, const char* role) {
  const Tensor& tensor = source(in, i, role);
  if (tensor.type != DType::i32)
    our_fault(in, strf("source %s is %s, expected I32", role, std::string(type_info(tensor.type).name).c_str()));
  return tensor;
}

void expect_shape(const OpInputs& in, const Tensor& tensor, const std::string& role, const Shape& expected) {
  if (tensor.shape == expected) return;
  refuse(in, strf("%s is %s, expected %s", role.c_str(), described(tensor).c_str(), expected.text().c_str()));
}

void expect_extent(const OpInputs& in, const Tensor& tensor, const char* role, int axis, std::int64_t expected) {
  if (tensor.shape[axis] == expected) return;
  refuse(in, strf("%s is %s, expected axis %d to be %lld", role, described(tensor).c_str(), axis,
                  static_cast<long long>(expected)));
}

void require(const OpInputs& in, bool ok, const std::string& what) {
  if (!ok) refuse(in, what);
}

std::int64_t matrix(const OpInputs& in, std::size_t i, const char* role, const MatrixSpec& spec) {
  const Slot& s = slot(in, i, role);
  const Tensor& w = operand(in, s.weight, role);
  const std::int64_t n = spec.n == kAny ? w.shape[1] : spec.n;
  const std::int64_t stack = std::max<std::int64_t>(spec.experts, 1);
  const bool fits =
      (spec.k == kAny || w.shape[0] == spec.k) && w.shape[1] == n && w.shape[2] == stack && w.shape[3] == 1;
  if (!fits) {
    std::string expected = extent(spec.k) + " x " + extent(spec.n);
    if (spec.experts > 0) expected += " x " + extent(spec.experts);
    refuse(in, strf("slot %s is %s, expected %s", role, described(w).c_str(), expected.c_str()));
  }
  if (w.type == DType::i32) refuse(in, strf("slot %s is I32 (%s): integers are no weights", role, w.name.c_str()));
  if (s.bias.valid()) {
    const std::string what = strf("bias of slot %s", role);
    const Tensor& bias = operand(in, s.bias, what.c_str());
    expect_f32(in, bias, what);
    expect_shape(in, bias, what, spec.experts > 0 ? Shape(n, spec.experts) : Shape(n));
  }
  if (s.scale.valid()) {
    const std::string what = strf("scale of slot %s", role);
    const Tensor& scale = operand(in, s.scale, what.c_str());
    expect_f32(in, scale, what);
    if (scale.shape.elements() != 1) expect_shape(in, scale, what, Shape(stack));
  }
  check_adapters(in, s, role, spec);
  return n;
}

void vector(const OpInputs& in, std::size_t i, const char* role, std::span<const Shape> allowed) {
  const Slot& s = slot(in, i, role);
  const std::string what = strf("slot %s", role);
  const Tensor& w = operand(in, s.weight, role);
  expect_f32(in, w, what);
  if (!s.adapters.empty()) our_fault(in, what + " is a vector and has adapters");
  if (std::find(allowed.begin(), allowed.end(), w.shape) == allowed.end()) expect_shape(in, w, what, allowed.front());
  if (!s.bias.valid()) return;
  const std::string bias_role = strf("bias of slot %s", role);
  const Tensor& bias = operand(in, s.bias, bias_role.c_str());
  expect_f32(in, bias, bias_role);
  expect_shape(in, bias, bias_role, w.shape);
}

}  // namespace ggml::shape_check
