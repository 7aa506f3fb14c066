#include "cpu/ops/projection.h"

#include <algorithm>

#include "ggml/error.h"

namespace ggml::cpu {
namespace {

// Rounding this many values takes a core about two microseconds, as long as a barrier among many.
constexpr std::int64_t kPrivateValues = 8192;

}  // namespace

Projection Projection::part(std::int64_t first, std::int64_t count) const {
  Projection p = *this;
  p.weights = weights == nullptr ? nullptr : weights + first * row_bytes;
  p.n = count;
  p.bias = bias == nullptr ? nullptr : bias + first;
  return p;
}

Projection bind_projection(const BindContext& context, const Slot& slot) {
  const Tensor& w = context.tensor(slot.weight);
  Projection p;
  p.mul_mat = context.kernels().of(w.type).mul_mat;
  p.type = w.type;
  p.act = type_info(w.type).act;
  p.weights = context.address(slot.weight);
  p.k = w.shape[0];
  p.n = w.shape[1];
  p.row_bytes = static_cast<std::int64_t>(row_bytes(w.type, p.k));
  p.expert_bytes = p.row_bytes * p.n;
  p.bias = context.data<const float>(slot.bias);
  p.bias_stride = p.n;
  p.scale = context.data<const float>(slot.scale);
  p.scale_per_expert = slot.scale.valid() && context.tensor(slot.scale).shape.elements() > 1;
  return p;
}

const char* why_not_projection(const Graph& graph, const KernelTable& kernels, const Slot& slot) {
  if (!slot.weight.valid()) return "a slot has no weight";
  if (kernels.of(graph.at(slot.weight).type).mul_mat == nullptr) return "no matrix kernel for the weight's type";
  if (!slot.adapters.empty()) return "a slot has adapters";
  for (const TensorId id : {slot.bias, slot.scale}) {
    if (id.valid() && graph.at(id).type != DType::f32) return "a bias or scale that is not F32";
  }
  return nullptr;
}

void finish_projection(const Projection& p, std::int64_t expert, const KernelTable& kernels,
                       const ResultBlock& block) noexcept {
  if (p.is_plain()) return;
  const std::int64_t n = block.n1 - block.n0;
  for (std::int64_t m = 0; m < block.m_rows; ++m) {
    float* y = block.y + (block.rows == nullptr ? m : block.rows[m]) * block.stride;
    if (p.scale != nullptr) kernels.vec.scale(y, p.scale[p.scale_per_expert ? expert : 0], n, y);
    if (p.bias != nullptr) kernels.vec.add(y, p.bias + expert * p.bias_stride + block.n0, n, y);
  }
}

void run_product(const Projection& p, const KernelTable& kernels, const ProductArgs& args,
                 const ResultBlock& block) noexcept {
  MatmulArgs a;
  a.weights = p.rows(args.expert, block.n0);
  a.weight_row_bytes = p.row_bytes;
  a.k = p.k;
  a.n0 = 0;
  a.n1 = block.n1 - block.n0;
  a.act = args.act;
  a.m_rows = block.m_rows;
  a.src_rows = args.src_rows;
  a.dst_rows = block.rows;
  a.dst = block.y;
  a.dst_row_stride = block.stride;
  a.scratch = args.scratch;
  p.mul_mat(a);
  finish_projection(p, args.expert, kernels, block);
}

RoundedInput::RoundedInput(const BindContext& context, std::span<const Projection> projections, std::int64_t k,
                           std::int64_t capacity, Carver& carver)
    : kernels_(&context.kernels()), k_(k) {
  for (const Projection& p : projections) {
    const auto end = forms_.begin() + n_forms_;
    if (std::find(forms_.begin(), end, p.act) != end) continue;
    TANDEM_ASSERT(n_forms_ < kMaxForms, "a group of projections has at most as many forms as members");
    forms_[static_cast<std::size_t>(n_forms_++)] = p.act;
  }
  private_rows_ = std::clamp(kPrivateValues / k, std::int64_t{1}, capacity);
  const auto private_bytes = [&](ActType form) { return static_cast<std::int64_t>(act_bytes(form, k, private_rows_)); };
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_forms_); ++i) {
    shared_[i] = capacity > 1 ? carver.bytes(act_bytes(forms_[i], k, capacity)) : nullptr;
    own_[i] = PerWorker<std::byte>(carver, context.n_workers(), private_bytes(forms_[i]));
  }
}

RoundedInput::View RoundedInput::round(Team& team, const float* x, std::int64_t x_stride,
                                       std::int64_t rows) const noexcept {
  View view;
  const bool alone = is_private(rows);
  const Team::Range own = alone ? Team::Range{0, rows} : team.part(rows);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_forms_); ++i) {
    view.forms[i] = act_view(forms_[i], alone ? own_[i].of(team) : shared_[i], k_, rows);
    quantise_act_rows(*kernels_, forms_[i], x, x_stride, k_, view.forms[i], own.begin, own.end);
  }
  return view;
}

ActView RoundedInput::shared(ActType form, std::int64_t rows) const noexcept {
  std::size_t i = 0;
  while (forms_[i] != form) ++i;
  return act_view(form, shared_[i], k_, rows);
}

const ActView& RoundedInput::of(const View& view, ActType form) const noexcept {
  std::size_t i = 0;
  while (forms_[i] != form) ++i;
  return view.forms[i];
}

ProjectionGroup::ProjectionGroup(const BindContext& context, std::span<const Member> members, std::int64_t capacity,
                                 Carver& carver)
    : kernels_(&context.kernels()), n_members_(static_cast<int>(members.size())) {
  TANDEM_ASSERT(members.size() <= kMaxMembers, "a group has at most three projections");
  std::array<Projection, kMaxMembers> projections;
  for (std::size_t i = 0; i < members.size(); ++i) {
    members_[i] = members[i];
    projections[i] = members[i].projection;
    first_unit_[i + 1] = first_unit_[i] + (members[i].projection.n + kRowUnit - 1) / kRowUnit;
  }
  input_ = RoundedInput(context, std::span(projections).first(members.size()), projections[0].k, capacity, carver);
  scratch_ =
      PerWorker<std::byte>(carver, context.n_workers(), static_cast<std::int64_t>(matmul_scratch_bytes(capacity)));
}

void ProjectionGroup::run(Team& team, const float* x, std::int64_t x_stride, std::int64_t rows) const noexcept {
  if (rows == 0) return;
  const RoundedInput::View view = input_.round(team, x, x_stride, rows);
  if (!input_.is_private(rows)) team.barrier();
  const std::int64_t units = first_unit_[static_cast<std::size_t>(n_members_)];
  team.for_chunks(units, chunk_for(units, team.size(), 1),
                  [&](std::int64_t begin, std::int64_t end) { run_units(team, view, rows, begin, end); });
}

void ProjectionGroup::run_units(Team& team, const RoundedInput::View& view, std::int64_t rows, std::int64_t begin,
                                std::int64_t end) const noexcept {
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_members_); ++i) {
    const std::int64_t first = std::max(begin, first_unit_[i]);
    const std::int64_t last = std::min(end, first_unit_[i + 1]);
    if (first >= last) continue;
    const Member& m = members_[i];
    const std::int64_t n0 = (first - first_unit_[i]) * kRowUnit;
    const std::int64_t n1 = std::min((last - first_unit_[i]) * kRowUnit, m.projection.n);
    run_product(m.projection, *kernels_, {.act = input_.of(view, m.projection.act), .scratch = scratch_.of(team)},
                {.y = m.dst + n0, .stride = m.dst_stride, .m_rows = rows, .n0 = n0, .n1 = n1});
  }
}

}  // namespace ggml::cpu
