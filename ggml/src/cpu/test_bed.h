#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ggml/cpu.h"
#include "ggml/device.h"
#include "ggml/graph.h"

/// A small graph with random weights and inputs, run on the CPU device and by the double-precision evaluator.
namespace ggml::cpu::test {

/// How the CPU device runs a case.
struct DeviceSetup {
  std::string isa = {};  // "" best
  int n_threads = 1;
  bool decompose_all = false;
  Observer* observer = nullptr;
};

/// Values of the output and state ports after a run: f32 outputs as they are, i32 and state as words.
struct Outcome {
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<std::int32_t>> words;
  std::vector<std::string> description;
  MemoryPlan plan;
};

class TestBed {
 public:
  TestBed(int token_bucket, int output_bucket, std::uint32_t seed);

  [[nodiscard]] GraphBuilder& graph() { return builder_; }
  [[nodiscard]] std::mt19937& random() { return random_; }

  /// A weight with normally distributed values of deviation `scale`, encoded in `type`.
  const Weight& weight(DType type, const Shape& shape, float scale);
  /// A weight with these values, encoded in `type`.
  const Weight& weight_of(DType type, const Shape& shape, const std::vector<float>& values);
  TensorId weight_id(DType type, const Shape& shape, float scale) {
    return builder_.weight(weight(type, shape, scale));
  }
  /// A matrix slot whose products have about unit size: deviation 1 / sqrt(K).
  Slot slot(DType type, const Shape& shape);

  TensorId input(std::string name, const Shape& shape, Rows rows, std::vector<float> values);
  TensorId input(std::string name, const Shape& shape, Rows rows, std::vector<std::int32_t> values);
  TensorId random_input(std::string name, const Shape& shape, Rows rows, float scale = 1.0f);
  /// Memory that keeps its contents and is compared as words (the KV pool).
  TensorId state(std::string name, std::vector<std::int32_t> words);
  /// Puts a tensor out; its memory is filled with kUntouched before each run.
  void output(TensorId id, std::string name);

  Outcome run_cpu(const StepCounts& counts, const DeviceSetup& setup);
  /// On any device: weights are copied to it in its own form, ports lie in host memory that it reads in place.
  Outcome run_on(Device& device, const StepCounts& counts, const CompileOptions& options);
  Outcome run_reference(const StepCounts& counts);

  [[nodiscard]] std::vector<float> normal(std::int64_t n, float scale);
  static constexpr std::int32_t kUntouched = 0x7fc0dead;  // a NaN that no kernel makes

 private:
  struct Port {
    std::string name;
    DType type;
    std::vector<std::int32_t> initial;
    bool is_result;
    std::unique_ptr<Buffer> memory;
  };
  PortId add_port(std::string name, DType type, std::vector<std::int32_t> initial, bool is_result);
  std::vector<PortBinding> bind_ports(Device& device);
  void place_weights(Device& device);
  void collect(Outcome& outcome) const;

  GraphBuilder builder_;
  std::mt19937 random_;
  std::deque<Weight> weights_;
  std::deque<std::vector<std::byte>> storage_;
  std::deque<Port> ports_;
  std::deque<std::unique_ptr<Buffer>> placed_;  // copies of weights on other devices
};

/// From now on every case runs on this device and no other: the op tests of another backend are those of the CPU.
void test_device_instead(Device& device);

/// The device for a setup; made once, kept for the rest of the program.
Device& cpu_device(const std::string& isa, int n_threads);
/// Names of the kernel tables that this machine runs.
std::vector<std::string> isa_names();

/// Real rows of `got` (the first `live` elements) against `want`, row by row of `width`: the error's norm over the row
/// is at most `tolerance` times the norm of `want`'s row; beyond them everything is untouched.
struct Tolerance {
  double row = 1e-5;
  double outlier_row = 1e-5;   // rows that met a rounding tie the other way round may be this far off
  double outlier_share = 0.0;  // and are at most this share of all rows (but one is always allowed when > 0)
};
void expect_close(const std::vector<float>& got, const std::vector<float>& want, std::int64_t width, std::int64_t live,
                  const Tolerance& tolerance, const std::string& what);

}  // namespace ggml::cpu::test
