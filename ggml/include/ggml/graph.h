#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ggml/op.h"
#include "ggml/tensor.h"

namespace ggml {

using DeviceId = Id<struct DeviceTag>;
using TensorId = Id<struct TensorTag>;  // index into Graph::tensors
using NodeId = Id<struct NodeTag>;      // index into Graph::nodes
using PortId = Id<struct PortTag>;      // memory that the caller binds: inputs, outputs, state; the caller numbers them

enum class BufferKind : std::uint8_t { device, host_pageable, host_pinned, mapping, mapping_registered };
enum class PlacementAxis : std::uint8_t { whole, rows, heads, experts };
enum class PlacementRole : std::uint8_t { primary, replica, cache };

/// Where (a part of) a weight lies.
struct Placement {
  DeviceId device{0};
  BufferKind kind = BufferKind::mapping;
  PlacementAxis axis = PlacementAxis::whole;
  PlacementRole role = PlacementRole::primary;
  std::int64_t begin = 0;  // range on the axis; whole: unused
  std::int64_t end = 0;
  const std::byte* data = nullptr;  // in the device's address space
};

/// A tensor of the model file, with its placements. Owned by the model; graphs point to it. Immutable once loaded.
struct Weight {
  std::string name;  // GGUF name
  DType type = DType::f32;
  Shape shape;
  std::vector<Placement> placements;
};

/// Which run-time count limits the last axis: rows beyond it are neither read nor written.
enum class Rows : std::uint8_t { fixed, tokens, outputs };

enum class TensorRole : std::uint8_t { weight, activation, port, view };

struct Tensor {
  std::string name;  // stable: "attn_norm-12", "blk.3.ffn_up.weight"
  DType type = DType::f32;
  Shape shape;  // the last axis used is the capacity when rows != fixed
  TensorRole role = TensorRole::activation;
  Rows rows = Rows::fixed;
  const Weight* weight = nullptr;  // role weight
  PortId port;                     // role port; or an activation that is to be written straight to this port
  TensorId base;                   // role view: the tensor whose bytes it shows; never itself a view
  std::int64_t offset_bytes = 0;   // role view; a view may be a source or a result of a node
  bool observed = false;           // never fused away; handed to the Observer after its node ran
};

/// A low-rank addition to a slot's matrix (LoRA, arXiv:2106.09685): each row x of the input also gives B (A x), times
/// the row's own factor. It is added behind the slot's scale and in front of its bias.
struct SlotAdapter {
  TensorId a;       // [K, r] or [K, r, n_expert]; of a table of rows by id (embed): [r, rows]
  TensorId b;       // [r, N] or [r, N, n_expert]
  TensorId scales;  // [1, T] f32: a factor per row; 0 leaves a row as it is
};

/// One projection inside a coarse op: the place where biases, scales, adapters and taps attach.
struct Slot {
  TensorId weight;
  TensorId bias;        // [N] or [N, n_expert] f32, added after the product
  TensorId scale;       // [1] or [n_expert] f32, multiplies the product before the bias
  bool tapped = false;  // the Observer sees this projection's input rows (imatrix)
  std::vector<SlotAdapter> adapters = {};
};

struct Node {
  Op op = Op::copy;
  OpParams params;
  std::vector<TensorId> src;
  std::vector<Slot> slots;
  std::vector<TensorId> dst;
  std::string name;
};

/// A step graph (one segment): tensors and nodes in execution order. A value; thread-compatible.
struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  int token_bucket = 0;   // capacity of Rows::tokens
  int output_bucket = 0;  // capacity of Rows::outputs

  [[nodiscard]] const Tensor& at(TensorId id) const { return tensors[static_cast<std::size_t>(id.v)]; }
  [[nodiscard]] Tensor& at(TensorId id) { return tensors[static_cast<std::size_t>(id.v)]; }
};

/// Builds a Graph. Every method checks shapes with the op's shape rule and throws Error(invalid_file), naming node and
/// shapes, when they do not fit (a model file can cause that); results get the shapes the rule gives.
class GraphBuilder {
 public:
  GraphBuilder(int token_bucket, int output_bucket);

  TensorId weight(const Weight& weight);  // the same Weight gives the same id
  TensorId port(PortId port, std::string name, DType type, const Shape& shape, Rows rows);
  /// Another shape over the same bytes. Pre: equal number of elements.
  TensorId reshape(TensorId src, const Shape& shape, std::string name);
  /// Writes `tensor` to a port's memory instead of the arena; it is an output and never fused away. A tensor that has
  /// no bytes of its own in the arena (a weight, a port, a part of another tensor, or one that has a port) is copied
  /// there.
  void output(TensorId tensor, PortId port);
  void observe(TensorId tensor);

  /// Adds a node; returns its results. `name` names the first result, further results get name + ".1" ...
  std::vector<TensorId> add(Op op, OpParams params, std::span<const TensorId> src, std::span<const Slot> slots,
                            std::string name);

  // The same, typed; see the parameter structs for shapes.
  TensorId embed(TensorId ids, const Slot& table, const EmbedParams& params, std::string name);
  TensorId norm(TensorId x, const Slot& weight, const NormParams& params, std::string name);
  struct NormSum {
    TensorId normed, sum;
  };
  NormSum add_norm(TensorId x, TensorId residual, const Slot& weight, const NormParams& params, std::string name);
  TensorId linear(TensorId x, const Slot& weight, std::string name);
  struct Qkv {
    TensorId q, k, v;
  };
  Qkv qkv(TensorId x, std::span<const Slot> slots, const QkvParams& params, std::string name);
  Qkv rope_qk(const Qkv& qkv, TensorId positions, TensorId factors, const RopeParams& params, std::string name);
  struct AttentionInputs {
    TensorId pool, spans, block_table;
  };
  TensorId attention(const Qkv& qkv, const AttentionInputs& inputs, const Slot& sinks, const AttentionParams& params,
                     std::string name);
  TensorId ffn(TensorId x, std::span<const Slot> slots, const FfnParams& params, std::string name);
  struct Route {
    TensorId ids, weights;
  };
  Route moe_route(TensorId x, std::span<const Slot> slots, const MoeRouteParams& params, std::string name);
  TensorId moe_ffn(TensorId x, const Route& route, std::span<const Slot> slots, const MoeFfnParams& params,
                   std::string name);
  TensorId add(TensorId a, TensorId b, std::string name);
  TensorId mul(TensorId a, TensorId b, std::string name);
  TensorId unary(TensorId x, const UnaryParams& params, std::string name);
  struct MlaInputs {
    TensorId q, latent, k_rot;
    AttentionInputs cache;
  };
  TensorId mla(const MlaInputs& inputs, std::span<const Slot> slots, const MlaParams& params, std::string name);
  TensorId slice(TensorId x, int begin, int count, std::string name);
  TensorId concat(TensorId a, TensorId b, std::string name);
  /// Where the states of a recurrent layer lie, and which slots the spans use.
  struct StateInputs {
    TensorId pool, spans;
  };
  TensorId conv1d(TensorId x, const StateInputs& state, const Slot& filters, const Conv1dParams& params,
                  std::string name);
  struct DeltaNetInputs {
    TensorId qkv, beta, alpha;
  };
  TensorId delta_net(const DeltaNetInputs& inputs, const StateInputs& state, const Slot& decay,
                     const DeltaNetParams& params, std::string name);
  TensorId pool(TensorId x, TensorId spans, const PoolParams& params, std::string name);
  /// Rows of an activation by id; the result has Rows::outputs.
  TensorId select_rows(TensorId x, TensorId row_ids, std::string name);

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] Graph take() { return std::move(graph_); }

 private:
  TensorId append(Tensor tensor);
  [[nodiscard]] TensorId add_one(Op op, OpParams params, std::vector<TensorId> src, std::span<const Slot> slots,
                                 std::string name);

  Graph graph_;
  std::unordered_map<const Weight*, TensorId> weights_;
};

/// Bytes read and written and arithmetic done by a node at its capacity, or at `tokens` real rows: weights count once.
/// The cells that attention reads depend on the step and are not included: kv_bytes counts the new rows only.
struct Cost {
  double weight_bytes = 0, act_bytes = 0, kv_bytes = 0, flops = 0;
};
[[nodiscard]] Cost node_cost(const Graph& graph, const Node& node, int tokens);

/// How an op may be split over devices: the axis of its slots, and whether the parts are slices or partial sums.
enum class ShardResult : std::uint8_t { none, slice, partial_sum };
struct ShardRule {
  PlacementAxis axis = PlacementAxis::whole;
  ShardResult result = ShardResult::none;
};
[[nodiscard]] ShardRule shard_rule(Op op) noexcept;

/// The graph with the node replaced by its decomposition into primitives (that of primitives is themselves). Results
/// keep their ids' names.
[[nodiscard]] bool is_primitive(Op op) noexcept;
/// Decomposes every coarse node for which `keep` is false.
[[nodiscard]] Graph decompose(const Graph& graph, bool (*keep)(const Graph&, const Node&, const void* context),
                              const void* context);

/// Every coarse node decomposed.
[[nodiscard]] Graph decompose(const Graph& graph);

inline constexpr std::size_t kNotInArena = SIZE_MAX;
inline constexpr std::size_t kArenaAlignment = 64;

/// Where each activation lies in one arena; lifetimes from first write to last read, offsets reused.
struct MemoryPlan {
  std::vector<std::size_t> offsets;  // per TensorId, a view's its own; SIZE_MAX for tensors that are not in the arena
  std::size_t arena_bytes = 0;
  std::size_t max_live_bytes = 0;  // lower bound: the greatest sum of bytes alive at one time
};
/// `scratch_bytes[i]` is the workspace node i needs while it runs (may be empty); its offsets follow in
/// `scratch_offsets` (kNotInArena where none is needed). Offsets are multiples of kArenaAlignment. The result of an
/// elementwise primitive (add, mul, unary) lies on top of src[0] where nobody reads src[0] later.
[[nodiscard]] MemoryPlan plan_memory(const Graph& graph, std::span<const std::size_t> scratch_bytes,
                                     std::vector<std::size_t>& scratch_offsets);

}  // namespace ggml
