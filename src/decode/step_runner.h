#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/kept_streams.h"
#include "decode/offload_rules.h"
#include "decode/ports.h"
#include "decode/program_cache.h"
#include "decode/segments.h"
#include "decode/streamed_memory.h"
#include "kv/kv_cache.h"
#include "llama/context.h"

namespace llama {

/// Results of one step with the memory behind them.
struct StepOutput {
  StepResult result;
  std::vector<float> logits;
  std::unique_ptr<ggml::Buffer> card_logits;  // one row, where a card writes it in place of `logits`
  std::vector<float> embeddings;
};

/// What a runner works with. Borrowed.
struct StepMachinery {
  const PortSets& ports;
  ProgramCache& programs;
  const SegmentBuilder& segments;
  const OffloadRules& offload;
  const PortHomes& homes;
  StreamedMemory& streamed;
};

/// Evaluates one step: cuts it into ubatches, fills the ports, walks the segments, collects logits and tokens. Where
/// weights are sent to a device it walks layer after layer, each with all ubatches, so that they are sent once.
/// Allocates nothing once its vectors have grown and the step's programs are compiled. Thread-compatible.
class StepRunner {
 public:
  StepRunner(const Model& model, const ContextParams& params, const KvCache& cache, const StepMachinery& machinery);

  /// Pre: the step was checked and its cells were appended; `first_cells[i]` is the old length of its i-th sequence.
  /// Throws what the device throws, Error(cancelled) when the stop token said so.
  void run(const Step& step, std::span<const int> first_cells, const ggml::StopToken& stop, StepOutput& output);

  /// Bytes that the last step had to read.
  [[nodiscard]] double weight_bytes() const { return weight_bytes_; }
  [[nodiscard]] double kv_bytes() const { return kv_bytes_; }
  /// Bytes of a device that hold streams of ubatches which wait for their turn.
  [[nodiscard]] std::size_t kept_bytes(ggml::DeviceId device) const { return kept_.bytes(device); }

 private:
  [[nodiscard]] StepPorts& ports() { return *sets_[static_cast<std::size_t>(set_)]; }

  /// A run of tokens of one sequence inside the ubatch.
  struct Part {
    int sequence = 0;  // index in the step
    int first_row = 0;
    int n_rows = 0;
    int first_cell = 0;
  };
  /// A row whose logits are wanted.
  struct Output {
    int row = 0;              // in the ubatch
    int sequence = 0;         // index in the step
    float* logits = nullptr;  // where they go, null when a token is sampled
    Sampler* sampler = nullptr;
  };

  struct Ubatch {
    int n_tokens = 0;
    AdapterSet adapters = 0;  // that its programs apply: those that a row uses, or more
    int offload = 0;          // level
    std::vector<Part> parts;
    std::vector<Output> outputs;
  };
  /// How far a step has been cut.
  struct Cursor {
    std::size_t sequence = 0;
    int done = 0;  // tokens of that sequence
  };

  void run_ubatches(const Step& step, std::span<const int> first_cells, const ggml::StopToken& stop,
                    StepOutput& output);
  void run_by_layer(const Step& step, std::span<const int> first_cells, const ggml::StopToken& stop,
                    StepOutput& output);
  [[nodiscard]] std::size_t cut_step(const Step& step, std::span<const int> first_cells);
  void take_ubatch(const Step& step, std::span<const int> first_cells, Cursor& cursor);
  void enter(const Step& step, std::size_t ubatch, int border);
  void leave(std::size_t ubatch, int border);
  void prepare_output(const Step& step, StepOutput& output);
  int add_part(const StepSequence& sequence, const Part& part);
  void fill_ports(const Step& step);
  void fill_tokens(const StepSequence& sequence, const Part& part);
  [[nodiscard]] std::span<const float> scales_of(const StepSequence& sequence) const {
    return sequence.adapter_scales.empty() ? std::span<const float>(params_.adapter_scales) : sequence.adapter_scales;
  }
  [[nodiscard]] AdapterSet adapters_to_apply(AdapterSet used);
  void fill_spans(const Step& step);
  void run_ubatch(const Step& step, const ggml::StopToken& stop, StepOutput& output);
  [[nodiscard]] SegmentKey key_of(int segment) const;
  [[nodiscard]] bool is_trimmed() const;
  void run_segment(int segment, const ggml::StopToken& stop);
  void run_outputs(const Step& step, const ggml::StopToken& stop, StepOutput& output);
  void run_head(const Step& step, std::span<const Output> outputs, const ggml::StopToken& stop, StepOutput& output);
  [[nodiscard]] bool send_logits(std::span<const Output> outputs, ggml::HostResults* results, StepOutput& output);
  [[nodiscard]] bool prepare_samplers(std::span<const Output> outputs);
  void sample_on_host(std::size_t output, Sampler& sampler);
  void store(std::span<const Output> outputs, bool checked, StepOutput& output);
  void prepare_embeddings(const Step& step, StepOutput& output);
  void run_embeddings(const Step& step, const ggml::StopToken& stop);
  /// Tokens of the part's sequence before it in this step.
  [[nodiscard]] int offset_in_step(const StepSequence& sequence, const Part& part) const {
    return part.first_cell - (cache_.length(sequence.seq) - static_cast<int>(sequence.tokens.size()));
  }
  void count_bytes();
  [[nodiscard]] std::size_t stream_bytes(int n_rows) const;

  const Model& model_;
  const ContextParams& params_;
  const KvCache& cache_;
  const PortSets& sets_;
  int set_ = 0;  // that the present ubatch uses
  ProgramCache& programs_;
  const SegmentBuilder& segments_;
  const OffloadRules& offload_;
  const PortHomes& homes_;
  KeptStreams kept_;
  StreamedMemory& streamed_;

  std::vector<AdapterSet> known_adapter_sets_;  // that have programs
  Ubatch now_;                                  // the present ubatch
  std::vector<Ubatch> batch_;                   // all of a step that walks layer by layer
  std::size_t n_batch_ = 0;                     // of them in use
  bool by_layer_ = false;                       // this step does
  bool whole_ = true;                           // and sends all experts
  bool few_outputs_ = false;                    // of the last feed-forward it computes few rows
  std::vector<ggml::SampleAdjust> adjust_;
  ggml::SampleResult host_result_{};
  std::vector<float*> embeddings_;   // per sequence of the step: where its first embedding goes, null: none wanted
  std::vector<float*> next_logits_;  // per sequence of the step: where its next row goes

  double dense_bytes_ = 0;   // of all layers, without experts
  double expert_bytes_ = 0;  // of all experts
  double head_bytes_ = 0;
  std::vector<double> adapter_bytes_;  // per adapter
  double weight_bytes_ = 0;
  double kv_bytes_ = 0;
};

}  // namespace llama
