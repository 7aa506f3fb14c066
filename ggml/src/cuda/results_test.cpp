#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "ggml/cuda.h"
#include "ggml/host_results.h"

// Large results that a card writes to host memory itself: where they go, and the word that one of them is no number.
namespace ggml::cuda {
namespace {

constexpr std::int64_t kWidth = 3001, kRows = 8;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

/// y = x + x of some rows, all ports in pinned memory.
class Doubled {
 public:
  explicit Doubled(Device& device) : executor_(device.make_executor()) {
    GraphBuilder builder(static_cast<int>(kRows), 1);
    for (auto* port : {&x_, &y_, &other_}) {
      *port = device.allocate(kWidth * kRows * sizeof(float), BufferKind::host_pinned);
      std::fill_n(values(**port), kWidth * kRows, 1.0f);
    }
    const TensorId x = builder.port(PortId(0), "x", DType::f32, Shape(kWidth, kRows), Rows::tokens);
    builder.output(builder.add(x, x, "y"), PortId(1));
    const std::array<PortBinding, 2> ports{
        {{PortId(0), x_->data(), x_->bytes()}, {PortId(1), y_->data(), y_->bytes()}}};
    arena_ = device.allocate(executor_->arena_bytes(builder.graph(), {}), BufferKind::device);
    program_ = executor_->compile(builder.graph(), ports, *arena_, {});
  }

  [[nodiscard]] HostResults& results() const { return dynamic_cast<HostResults&>(*program_); }
  [[nodiscard]] float* x() const { return values(*x_); }
  [[nodiscard]] float* y() const { return values(*y_); }
  [[nodiscard]] float* other() const { return values(*other_); }
  /// Runs so many rows; whether a result was no number.
  bool gives_nan(int rows) {
    executor_->run(*program_, {rows, 0, 1}, {});
    executor_->synchronise();
    return results().gave_nan().value();
  }

 private:
  static float* values(Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Buffer> x_, y_, other_, arena_;
  std::unique_ptr<Program> program_;
};

class Results : public testing::Test {
 protected:
  Results() : cuda_(find_cuda_devices()), doubled_(*cuda_.devices.at(0)) {}

  CudaDevices cuda_;
  Doubled doubled_;
};

TEST_F(Results, AreLookedAtForValuesThatAreNoNumbers) {
  EXPECT_FALSE(doubled_.gives_nan(kRows));
  EXPECT_EQ(doubled_.y()[kWidth * kRows - 1], 2.0f);
  for (const std::int64_t at : {std::int64_t{0}, kWidth - 1, kWidth * 3 + 17, kWidth * kRows - 1}) {
    doubled_.x()[at] = kNan;
    EXPECT_TRUE(doubled_.gives_nan(kRows)) << at;
    doubled_.x()[at] = 1.0f;
    EXPECT_FALSE(doubled_.gives_nan(kRows)) << "after " << at;  // what one run gave is not said of the next
  }
}

TEST_F(Results, OfRowsThatAreNotRealAreNotLookedAt) {
  doubled_.x()[kWidth * 5] = kNan;
  EXPECT_FALSE(doubled_.gives_nan(5));
  EXPECT_TRUE(doubled_.gives_nan(6));
}

/// Logits of -infinity are how tokens are ruled out.
TEST_F(Results, MayBeInfinite) {
  doubled_.x()[7] = kInfinity;
  doubled_.x()[8] = -kInfinity;
  EXPECT_FALSE(doubled_.gives_nan(kRows));
  EXPECT_EQ(doubled_.y()[8], -kInfinity);
}

TEST_F(Results, GoWhereTheNextRunIsToldToSendThem) {
  ASSERT_TRUE(doubled_.results().send_result(PortId(1), reinterpret_cast<std::byte*>(doubled_.other())));
  EXPECT_FALSE(doubled_.gives_nan(2));
  EXPECT_EQ(doubled_.other()[2 * kWidth - 1], 2.0f);
  EXPECT_EQ(doubled_.other()[2 * kWidth], 1.0f);  // beyond the rows that are real
  EXPECT_EQ(doubled_.y()[0], 1.0f);
  EXPECT_FALSE(doubled_.gives_nan(2));  // the run after it writes to the port again
  EXPECT_EQ(doubled_.y()[0], 2.0f);
  EXPECT_FALSE(doubled_.results().send_result(PortId(0), reinterpret_cast<std::byte*>(doubled_.other())));
}

}  // namespace
}  // namespace ggml::cuda
