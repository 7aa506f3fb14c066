#include "sched/staging.h"

#include <algorithm>

#include "ggml/error.h"

namespace ggml::sched {

Staging::Staging(Device& device, Executor& lane) : device_(device), lane_(lane), copier_(device.make_copier()) {
  for (std::size_t half = 0; half < halves_.size(); ++half) {
    arrived_[half] = copier_->make_event();
    read_[half] = lane_.make_event();
  }
}

Staging::~Staging() {
  settle();
}

bool Staging::reserve(std::size_t half_bytes) {
  if (half_bytes <= this->half_bytes()) return false;
  copier_->synchronise();
  held_ = {};
  for (std::unique_ptr<Buffer>& half : halves_) half.reset();
  for (std::unique_ptr<Buffer>& half : halves_) half = device_.allocate(half_bytes, BufferKind::device);
  if (landing_ == nullptr && device_.landing_bytes() > 0)
    landing_ = device_.allocate(device_.landing_bytes(), BufferKind::device);
  return true;
}

std::byte* Staging::at(int half, std::size_t offset) {
  return halves_[static_cast<std::size_t>(half)]->data() + offset;
}

/// Makes the half that of `streams`; what lay there is given up where it was something else.
Staging::Half& Staging::prepare(const BoundStreams& streams) {
  const auto number = static_cast<std::size_t>(streams.half);
  Half& half = held_[number];
  const Weight* first = streams.all.front().weight;
  if (half.first == first && half.n == streams.all.size() && half.bytes == streams.bytes) return half;
  // Nobody may read it any more when it is overwritten. A lane that copies by itself is behind its own work anyway.
  if (streams.ahead && half.is_read) copier_->wait_for(*read_[number]);
  half = {first, streams.all.size(), streams.bytes, {}, false};
  return half;
}

void Staging::send(const BoundStreams& streams, const BoundStream& stream, const WeightRows& rows, LinkUse& use) {
  Executor& executor = streams.ahead ? *copier_ : lane_;
  executor.load_rows(rows, at(streams.half, stream.offset), landing_ == nullptr ? nullptr : landing_->data());
  ++use.copies_in;
  use.bytes_in += rows.bytes();
  ++use.weight_copies;
  use.weight_bytes += rows.bytes();
}

/// Neighbours that are missing go in one copy.
void Staging::send_missing(const BoundStreams& streams, const BoundStream& stream, const std::vector<bool>& wanted,
                           LinkUse& use) {
  std::vector<bool>& present = held_[static_cast<std::size_t>(streams.half)].present[stream.weight];
  present.resize(wanted.size(), false);
  const Shape& shape = stream.weight->shape;
  const std::int64_t part = shape.rows() / static_cast<std::int64_t>(wanted.size());
  for (std::size_t i = 0; i < wanted.size();) {
    std::size_t end = i;
    while (end < wanted.size() && wanted[end] && !present[end]) present[end++] = true;
    const auto first = static_cast<std::int64_t>(i), last = static_cast<std::int64_t>(end);
    if (end > i) send(streams, stream, {stream.weight->type, shape, stream.src, first * part, last * part}, use);
    i = end + 1;
  }
}

void Staging::send_ahead(const BoundStreams& streams, LinkUse& use) {
  if (streams.empty() || !streams.ahead) return;
  prepare(streams);
  for (const BoundStream& stream : streams.all) {
    if (stream.ids != nullptr) continue;
    wanted_.assign(static_cast<std::size_t>(std::max<std::int64_t>(stream.n_experts, 1)), true);
    send_missing(streams, stream, wanted_, use);
  }
  copier_->record(*arrived_[static_cast<std::size_t>(streams.half)]);
}

void Staging::fetch(const BoundStreams& streams, std::span<const std::size_t> wanted, const StepCounts& counts,
                    LinkUse& use) {
  prepare(streams);
  const std::uint64_t before = use.weight_copies;
  for (const std::size_t number : wanted) {
    const BoundStream& stream = streams.all[number];
    const auto n_parts = static_cast<std::size_t>(std::max<std::int64_t>(stream.n_experts, 1));
    wanted_.assign(n_parts, stream.ids == nullptr);
    if (stream.ids != nullptr) {
      const std::int64_t rows = stream.rows == Rows::outputs ? counts.n_outputs : counts.n_tokens;
      for (std::int64_t i = 0; i < rows * stream.n_used; ++i)
        if (const std::int32_t id = stream.ids[i]; id >= 0 && id < stream.n_experts)
          wanted_[static_cast<std::size_t>(id)] = true;
    }
    send_missing(streams, stream, wanted_, use);
  }
  if (!streams.ahead) return;
  Event& arrived = *arrived_[static_cast<std::size_t>(streams.half)];
  if (use.weight_copies != before) copier_->record(arrived);
  lane_.wait_for(arrived);
}

void Staging::used(int half) {
  const auto number = static_cast<std::size_t>(half);
  lane_.record(*read_[number]);
  held_[number].is_read = true;
}

void Staging::settle() noexcept {
  // What was to be sent may not have been.
  held_ = {};
  try {
    copier_->synchronise();
  } catch (...) {
    // The error that brought us here is the one to report.
    return;
  }
}

}  // namespace ggml::sched
