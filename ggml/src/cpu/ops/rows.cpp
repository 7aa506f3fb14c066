#include <cstring>

#include "cpu/ops/registry.h"
#include "ggml/quant.h"

namespace ggml::cpu {
namespace {

/// Rows of a table by id, as f32. An id outside the table gives zeros and reads nothing.
class GetRows final : public BoundOp {
 public:
  struct Source {
    TensorId table, ids, dst;
    float scale = 1.0f;
  };
  GetRows(const BindContext& c, const Source& source)
      : vec_(c.kernels().vec),
        dequantise_(c.kernels().of(c.tensor(source.table).type).dequantise_row),
        type_(c.tensor(source.table).type),
        table_(c.address(source.table)),
        n_(c.tensor(source.table).shape[0]),
        n_table_(c.tensor(source.table).shape.rows()),
        row_bytes_(row_bytes(c.tensor(source.table).type, n_)),
        ids_(c.data<const std::int32_t>(source.ids)),
        dst_(c.data<float>(source.dst)),
        rows_(c.live_rows(source.dst, n_)),
        scale_(source.scale) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      const std::int32_t id = ids_[row];
      float* y = dst_ + row * n_;
      if (id < 0 || id >= n_table_) {
        std::memset(y, 0, sizeof(float) * static_cast<std::size_t>(n_));
        continue;
      }
      if (dequantise_ != nullptr) {
        dequantise_(table_ + static_cast<std::size_t>(id) * row_bytes_, n_, y);
      } else {
        dequantise_row_of(type_, table_, id, n_, y);  // an interleaved table: no reference writes one, but it may be
      }
      if (scale_ != 1.0f) vec_.scale(y, scale_, n_, y);
    }
  }

 private:
  const VecKernels& vec_;
  void (*const dequantise_)(const std::byte*, std::int64_t, float*) noexcept;
  const DType type_;
  const std::byte* table_;
  const std::int64_t n_;
  const std::int64_t n_table_;
  const std::size_t row_bytes_;
  const std::int32_t* ids_;
  float* dst_;
  const LiveRows rows_;
  const float scale_;
};

std::unique_ptr<BoundOp> bind_embed(const BindContext& c, const Node& node, Carver&) {
  const GetRows::Source source{node.slots[0].weight, node.src[0], node.dst[0],
                               std::get<EmbedParams>(node.params).scale};
  return std::make_unique<GetRows>(c, source);
}

std::unique_ptr<BoundOp> bind_get_rows(const BindContext& c, const Node& node, Carver&) {
  return std::make_unique<GetRows>(c, GetRows::Source{node.src[0], node.src[1], node.dst[0]});
}

const char* table_declines(const Graph& graph, const KernelTable& kernels, TensorId table) {
  return kernels.of(graph.at(table).type).mul_mat == nullptr ? "no decoder for the table's type" : nullptr;
}
const char* embed_declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  if (!node.slots[0].adapters.empty()) return "the table has adapters";
  return table_declines(graph, kernels, node.slots[0].weight);
}
const char* get_rows_declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  return table_declines(graph, kernels, node.src[0]);
}

/// Primitive: the real rows, as they are.
class Copy final : public BoundOp {
 public:
  Copy(const BindContext& c, const Node& node, Carver&)
      : src_(c.address(node.src[0])),
        dst_(c.address(node.dst[0])),
        row_bytes_(row_bytes(c.tensor(node.src[0]).type, c.tensor(node.src[0]).shape[0])),
        rows_(c.live_rows(node.dst[0], c.tensor(node.src[0]).shape[0])) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    const auto begin = static_cast<std::size_t>(own.begin) * row_bytes_;
    std::memcpy(dst_ + begin, src_ + begin, static_cast<std::size_t>(own.end - own.begin) * row_bytes_);
  }

 private:
  const std::byte* src_;
  std::byte* dst_;
  const std::size_t row_bytes_;
  const LiveRows rows_;
};

}  // namespace

const OpImpl kEmbed{"embed", embed_declines, bind_embed};
const OpImpl kGetRows{"get_rows", get_rows_declines, bind_get_rows};
const OpImpl kCopy{"copy", accepts_always, bind_as<Copy>};

}  // namespace ggml::cpu
