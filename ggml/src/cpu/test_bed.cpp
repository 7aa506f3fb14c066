#include "cpu/test_bed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/kernels/kernels.h"
#include "ggml/quant.h"
#include "ggml/reference.h"

namespace ggml::cpu::test {
namespace {

Device*& device_instead() {
  static Device* device = nullptr;
  return device;
}

}  // namespace

void test_device_instead(Device& device) {
  device_instead() = &device;
}

TestBed::TestBed(int token_bucket, int output_bucket, std::uint32_t seed)
    : builder_(token_bucket, output_bucket), random_(seed) {}

std::vector<float> TestBed::normal(std::int64_t n, float scale) {
  std::normal_distribution<float> draw(0.0f, scale);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = draw(random_);
  return values;
}

namespace {

/// Types with a search are slow to encode: a few groups of rows are, and repeated.
void encode_weights(DType type, const Shape& shape, const std::vector<float>& values, std::vector<std::byte>& data) {
  constexpr std::size_t kDistinctGroups = 7;
  const TypeInfo& info = type_info(type);
  const auto row = static_cast<std::size_t>(shape[0]);
  const auto rows = static_cast<std::size_t>(shape.rows()), together = static_cast<std::size_t>(info.rows_per_group);
  const std::size_t group = row_bytes(type, shape[0]) * together;
  const std::size_t distinct = info.block_weights > 32 ? kDistinctGroups : rows / together;
  for (std::size_t g = 0; g < rows / together; ++g) {
    if (g >= distinct) {
      std::memcpy(data.data() + g * group, data.data() + g % distinct * group, group);
      continue;
    }
    const auto floats = std::span(values).subspan(g * together * row, together * row);
    quantise_rows(type, floats, shape[0], {}, data.data() + g * group);
  }
}

}  // namespace

const Weight& TestBed::weight(DType type, const Shape& shape, float scale) {
  return weight_of(type, shape, normal(shape.elements(), scale));
}

const Weight& TestBed::weight_of(DType type, const Shape& shape, const std::vector<float>& values) {
  std::vector<std::byte>& data = storage_.emplace_back(tensor_bytes(type, shape));
  encode_weights(type, shape, values, data);
  Weight& w = weights_.emplace_back();
  w.name = "weight." + std::to_string(weights_.size());
  w.type = type;
  w.shape = shape;
  Placement placement;
  placement.data = data.data();
  w.placements.push_back(placement);
  return w;
}

Slot TestBed::slot(DType type, const Shape& shape) {
  Slot s;
  s.weight = weight_id(type, shape, 1.0f / std::sqrt(static_cast<float>(shape[0])));
  return s;
}

PortId TestBed::add_port(std::string name, DType type, std::vector<std::int32_t> initial, bool is_result) {
  ports_.push_back({std::move(name), type, std::move(initial), is_result, nullptr});
  return PortId(static_cast<std::int32_t>(ports_.size()) - 1);
}

TensorId TestBed::input(std::string name, const Shape& shape, Rows rows, std::vector<float> values) {
  std::vector<std::int32_t> words(values.size());
  std::memcpy(words.data(), values.data(), values.size() * sizeof(float));
  const PortId port = add_port(name, DType::f32, std::move(words), false);
  return builder_.port(port, std::move(name), DType::f32, shape, rows);
}

TensorId TestBed::input(std::string name, const Shape& shape, Rows rows, std::vector<std::int32_t> values) {
  const PortId port = add_port(name, DType::i32, std::move(values), false);
  return builder_.port(port, std::move(name), DType::i32, shape, rows);
}

TensorId TestBed::random_input(std::string name, const Shape& shape, Rows rows, float scale) {
  return input(std::move(name), shape, rows, normal(shape.elements(), scale));
}

TensorId TestBed::state(std::string name, std::vector<std::int32_t> words) {
  const auto n = static_cast<std::int64_t>(words.size());
  const PortId port = add_port(name, DType::i32, std::move(words), true);
  return builder_.port(port, std::move(name), DType::i32, Shape(n), Rows::fixed);
}

void TestBed::output(TensorId id, std::string name) {
  const Tensor& t = builder_.graph().at(id);
  const auto n = static_cast<std::size_t>(t.shape.elements());
  builder_.output(id, add_port(std::move(name), t.type, std::vector<std::int32_t>(n, kUntouched), true));
}

std::vector<PortBinding> TestBed::bind_ports(Device& device) {
  std::vector<PortBinding> bindings;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const std::size_t bytes = ports_[i].initial.size() * sizeof(std::int32_t);
    ports_[i].memory = device.allocate(bytes, BufferKind::host_pinned);
    if (bytes > 0) std::memcpy(ports_[i].memory->data(), ports_[i].initial.data(), bytes);
    bindings.push_back({PortId(static_cast<std::int32_t>(i)), ports_[i].memory->data(), bytes});
  }
  return bindings;
}

void TestBed::collect(Outcome& outcome) const {
  for (const Port& port : ports_) {
    if (!port.is_result) continue;
    const std::size_t bytes = port.initial.size() * sizeof(std::int32_t);
    if (port.type == DType::f32) {
      std::vector<float>& to = outcome.values[port.name];
      to.resize(port.initial.size());
      std::memcpy(to.data(), port.memory->data(), bytes);
    } else {
      std::vector<std::int32_t>& to = outcome.words[port.name];
      to.resize(port.initial.size());
      std::memcpy(to.data(), port.memory->data(), bytes);
    }
  }
}

Outcome TestBed::run_cpu(const StepCounts& counts, const DeviceSetup& setup) {
  CompileOptions options;
  options.decompose_all = setup.decompose_all;
  options.observer = setup.observer;
  return run_on(device_instead() != nullptr ? *device_instead() : cpu_device(setup.isa, setup.n_threads), counts,
                options);
}

void TestBed::place_weights(Device& device) {
  for (Weight& w : weights_) {
    const bool placed = std::any_of(w.placements.begin(), w.placements.end(),
                                    [&](const Placement& p) { return p.device == device.id(); });
    if (placed) continue;
    Placement placement;
    placement.device = device.id();
    placement.kind = BufferKind::device;
    std::unique_ptr<Buffer> memory = device.allocate(device.weight_bytes(w.type, w.shape), BufferKind::device);
    device.load_weight(w.type, w.shape, w.placements[0].data, memory->data());
    placement.data = memory->data();
    w.placements.push_back(placement);
    placed_.push_back(std::move(memory));
  }
}

Outcome TestBed::run_on(Device& device, const StepCounts& counts, const CompileOptions& options) {
  place_weights(device);
  const std::unique_ptr<Executor> executor = device.make_executor();
  const std::vector<PortBinding> bindings = bind_ports(device);
  const std::size_t bytes = executor->arena_bytes(builder_.graph(), options);
  const std::unique_ptr<Buffer> arena = device.allocate(bytes, BufferKind::device);
  const std::vector<std::byte> unwritten(bytes, std::byte{0xff});  // NaN: whoever reads what nobody wrote is seen
  if (bytes > 0) device.copy(arena->data(), unwritten.data(), bytes);
  const std::unique_ptr<Program> program = executor->compile(builder_.graph(), bindings, *arena, options);
  executor->run(*program, counts, {});
  executor->synchronise();
  Outcome outcome;
  outcome.description = program->describe();
  outcome.plan = program->memory();
  collect(outcome);
  return outcome;
}

Outcome TestBed::run_reference(const StepCounts& counts) {
  ReferenceExecutor executor;
  const std::vector<PortBinding> bindings = bind_ports(cpu_device("", 1));
  const std::unique_ptr<Program> program = executor.compile(builder_.graph(), bindings, CompileOptions{});
  executor.run(*program, counts, {});
  Outcome outcome;
  collect(outcome);
  return outcome;
}

Device& cpu_device(const std::string& isa, int n_threads) {
  static std::map<std::pair<std::string, int>, std::unique_ptr<Device>> devices;
  std::unique_ptr<Device>& device = devices[{isa, n_threads}];
  if (!device) {
    CpuOptions options;
    options.isa = isa;
    options.n_threads = n_threads;
    options.team.poll = 0;
    device = make_cpu_device(options);
  }
  return *device;
}

std::vector<std::string> isa_names() {
  if (device_instead() != nullptr) return {device_instead()->name()};
  std::vector<std::string> names;
  for (const KernelTable* table : available_tables()) names.emplace_back(table->name);
  return names;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, std::int64_t width, std::int64_t live,
                  const Tolerance& tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::int64_t outliers = 0;
  double worst = 0.0;
  const std::int64_t n_rows = live / width;
  for (std::int64_t row = 0; row < n_rows; ++row) {
    double error = 0.0, size = 0.0;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      const double w = want[static_cast<std::size_t>(i)];
      const double d = got[static_cast<std::size_t>(i)] - w;
      ASSERT_FALSE(std::isnan(d)) << what << ": NaN at row " << row << " column " << i - row * width;
      error += d * d;
      size += w * w;
    }
    const double relative = std::sqrt(error) / std::max(std::sqrt(size), 1e-30);
    if (error == 0.0) continue;
    worst = std::max(worst, relative);
    ASSERT_LE(relative, std::max(tolerance.row, tolerance.outlier_row)) << what << ": row " << row;
    if (relative > tolerance.row) ++outliers;
  }
  const double allowed =
      tolerance.outlier_share == 0.0 ? 0.0 : std::max(1.0, tolerance.outlier_share * static_cast<double>(n_rows));
  EXPECT_LE(static_cast<double>(outliers), allowed) << what << ": worst row " << worst;
  for (auto i = static_cast<std::size_t>(live); i < got.size(); ++i) {
    std::int32_t word;
    std::memcpy(&word, &got[i], sizeof word);
    ASSERT_EQ(word, TestBed::kUntouched) << what << ": element " << i << " beyond the real rows was written";
  }
}

}  // namespace ggml::cpu::test
