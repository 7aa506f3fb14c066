// What it costs a step of one token to pass a layer's rows from the card to the CPU and back, with the device's own
// ways: copies and events of the driver, and HandOver. The CPU's part is no work, that of the card a copy inside its
// memory, whose time alone is taken off.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "ggml/cuda.h"
#include "ggml/device.h"

namespace ggml {
namespace {

constexpr int kLayers = 48, kRounds = 200;
constexpr std::size_t kWork = std::size_t{48} << 20;
constexpr std::size_t kRow = 2048 * 4, kIds = 8 * 4;  // a row, ids and weights of its experts

struct Places {
  explicit Places(Device& card)
      : work(card.allocate(2 * kWork, BufferKind::device)),
        there(card.allocate(4 * kRow, BufferKind::device)),
        here(card.allocate(4 * kRow, BufferKind::host_pinned)) {}
  [[nodiscard]] std::vector<HostCopy> out() const {
    std::byte *to = here->data(), *from = there->data();
    return {{to, from, kRow}, {to + kRow, from + kRow, kIds}, {to + kRow + 256, from + kRow + 256, kIds}};
  }
  [[nodiscard]] std::vector<HostCopy> in() const { return {{there->data() + 2 * kRow, here->data() + 2 * kRow, kRow}}; }
  std::unique_ptr<Buffer> work, there, here;
};

void work(Executor& executor, const Places& places) {
  executor.move(places.work->data() + kWork, places.work->data(), kWork);
}

template <class F>
double median_us(F&& step) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> us;
  for (int i = 0; i < kRounds; ++i) {
    const Clock::time_point begin = Clock::now();
    step();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kLayers);
  }
  std::nth_element(us.begin(), us.begin() + kRounds / 2, us.end());
  return us[kRounds / 2];
}

double work_alone(Executor& executor, const Places& places) {
  return median_us([&] {
    for (int layer = 0; layer < kLayers; ++layer) work(executor, places);
    executor.synchronise();
  });
}

double with_copies(Executor& executor, const Places& places) {
  const std::unique_ptr<Event> event = executor.make_event();
  return median_us([&] {
    for (int layer = 0; layer < kLayers; ++layer) {
      work(executor, places);
      for (const HostCopy& c : places.out()) executor.copy(c.dst, c.src, c.bytes);
      executor.record(*event);
      event->wait();
      for (const HostCopy& c : places.in()) executor.copy(c.dst, c.src, c.bytes);
    }
    executor.synchronise();
  });
}

double handed_over(Executor& executor, HandOver& hand_over, const Places& places) {
  return median_us([&] {
    work(executor, places);
    HandOver::Ticket ticket = hand_over.give(places.out());
    for (int layer = 1; layer < kLayers; ++layer) {
      hand_over.take(places.in());
      work(executor, places);
      const HandOver::Ticket next = hand_over.give(places.out());
      hand_over.await(ticket);
      hand_over.open();
      ticket = next;
    }
    hand_over.await(ticket);
    executor.synchronise();
  });
}

int run() {
  const CudaDevices cuda = find_cuda_devices();
  if (cuda.devices.empty()) {
    std::printf("no card: %s\n", cuda.problem.c_str());
    return 1;
  }
  Device& card = *cuda.devices.front();
  const std::unique_ptr<Executor> executor = card.make_executor();
  const Places places(card);
  const double alone = work_alone(*executor, places);
  std::printf("work of the card: %.2f us a layer\n", alone);
  std::printf("copies and events: %.2f us more\n", with_copies(*executor, places) - alone);
  const std::unique_ptr<HandOver> hand_over = executor->make_hand_over();
  if (hand_over != nullptr)
    std::printf("hand-over: %.2f us more\n", handed_over(*executor, *hand_over, places) - alone);
  return 0;
}

}  // namespace
}  // namespace ggml

int main() {
  return ggml::run();
}
