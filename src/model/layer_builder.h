#pragma once

#include <string>
#include <vector>

#include "ggml/graph.h"
#include "llama/types.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

/// What a layer needs beside its weights: the run-time inputs of the step and the settings of the context.
struct LayerInputs {
  ggml::TensorId positions;                       // [T] i32
  ggml::GraphBuilder::AttentionInputs attention;  // pool of this layer, spans and block table of its group
  ggml::TensorId output_rows;                     // [outputs] i32; valid: only these rows leave the layer
  const ggml::Weight* rope_factors = nullptr;     // [n_rot / 2] f32
  ggml::RopeParams rope;
  ggml::KvLayout kv;
  bool flash = true;
  bool k_hadamard = false;                // keys are cached Hadamard-transformed, and queries meet them so
  bool v_hadamard = false;                // values are, and what attention gives is transformed back
  float attention_scale = 1.0f;           // of the scores
  ggml::GraphBuilder::StateInputs state;  // recurrent layers
  int mla_expand_from = 0;                // see MlaParams
  std::int64_t mla_max_scratch = 0;
  int experts_kept = 0;            // > 0: experts of this rank on are dropped where their score is below
  float expert_keep_ratio = 0.0f;  // this share of the best one's (-ser)
};

class AdapterScales;

/// The residual stream and the vocabulary in which families describe one layer. Every node's name is a stem and the
/// layer's number ("attn_norm-12"), the same in all families.
class LayerBuilder {
 public:
  /// `adapters` is shared by the layers of a graph.
  LayerBuilder(ggml::GraphBuilder& graph, const Hparams& hparams, LayerId layer, const TensorSet& weights,
               AdapterScales& adapters);

  void set_inputs(const LayerInputs& inputs) { inputs_ = inputs; }
  void set_stream(ggml::TensorId x) { x_ = x; }

  /// Norm of the residual stream: [n_embd, T]. Sums what was added before in the same node.
  ggml::TensorId norm(Role weight, const char* stem);
  /// The stream itself, for layers without a norm in front.
  [[nodiscard]] ggml::TensorId stream() { return sum(); }
  /// Norm of a branch before it joins the stream (sandwich norms).
  ggml::TensorId branch_norm(ggml::TensorId x, Role weight, const char* stem);
  /// Rotates n_rot elements of each head [d, heads, T] from element `first` on.
  ggml::TensorId rotate(ggml::TensorId x, int first, const char* stem);
  /// act(gate) * x.
  ggml::TensorId gated(ggml::TensorId gate, ggml::TensorId x, ggml::Activation act, const char* stem);
  /// Norm of the stream, which then is what the norm gave (norms behind the residual sum, as BERT has them).
  void norm_stream(Role weight, const char* stem);
  /// stream += branch. `stem` names the sum.
  void add(ggml::TensorId branch, const char* stem);
  /// From here on only the rows with outputs matter: nothing else reads the last layer's other rows. No effect in
  /// other layers.
  void keep_output_rows();
  /// The stream as one tensor; the end of a segment.
  ggml::TensorId sum();
  /// stream += the control vector, where the layer has one. Behind the layer's last sum.
  void steer();
  /// Carries a pending sum over to the next layer of the segment.
  void continue_from(const LayerBuilder& previous);

  /// y = W x of the layer's weight `role`.
  ggml::TensorId linear(ggml::TensorId x, Role role, const char* stem);
  [[nodiscard]] ggml::Slot slot(Role role);
  [[nodiscard]] bool has(Role role) const { return static_cast<bool>(weights_[role]); }
  [[nodiscard]] std::string name(const char* stem) const;

  [[nodiscard]] ggml::GraphBuilder& graph() { return graph_; }
  [[nodiscard]] const Hparams& hparams() const { return hparams_; }
  [[nodiscard]] const LayerHparams& layer() const { return hparams_.layers[static_cast<std::size_t>(layer_.v)]; }
  [[nodiscard]] const LayerInputs& inputs() const { return inputs_; }

  struct Renamed {
    ggml::TensorId tensor;
    std::string name;
  };
  /// Sums made inside norm nodes, with the names add() gave them; the caller renames them in the finished graph.
  [[nodiscard]] const std::vector<Renamed>& renamed() const { return renamed_; }

 private:
  ggml::GraphBuilder& graph_;
  const Hparams& hparams_;
  LayerId layer_;
  const TensorSet& weights_;
  AdapterScales& adapters_;
  LayerInputs inputs_;
  ggml::TensorId x_;        // the stream without `pending_`
  ggml::TensorId pending_;  // a branch that the next norm or sum adds
  std::string pending_name_;
  std::vector<Renamed> renamed_;
};

}  // namespace llama
