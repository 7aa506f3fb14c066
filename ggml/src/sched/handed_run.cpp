#include "sched/handed_run.h"

#include <algorithm>

#include "ggml/error.h"

namespace ggml::sched {
namespace {

/// Bytes around a part beyond which copies of the driver are faster than those of a small kernel.
constexpr std::size_t kMostBytes = std::size_t{128} << 10;

std::size_t most_bytes(const std::vector<BoundCopy>& copies, const StepCounts& most) {
  std::size_t sum = 0;
  for (const BoundCopy& copy : copies) sum += copy.bytes_of(most);
  return sum;
}

}  // namespace

int device_to_hand_over_with(const ScheduledProgram& program) {
  const StepCounts most{program.token_bucket, program.output_bucket, 0};
  int device = 0;
  bool cpu = false;
  for (const ScheduledProgram::Part& part : program.parts) {
    cpu |= part.device == 0;
    if (part.device == 0) continue;
    if ((device != 0 && part.device != device) || !part.streams.empty()) return 0;
    if (most_bytes(part.in, most) > kMostBytes || most_bytes(part.out, most) > kMostBytes) return 0;
    device = part.device;
  }
  return cpu ? device : 0;
}

std::span<const HostCopy> HandedRun::sized(const std::vector<BoundCopy>& copies) {
  copies_.clear();
  for (const BoundCopy& copy : copies) {
    const std::size_t bytes = copy.bytes_of(counts_);
    LinkUse& link = stats_.links[static_cast<std::size_t>(copy.device)];
    (copy.to_device ? link.bytes_in : link.bytes_out) += bytes;
    ++(copy.to_device ? link.copies_in : link.copies_out);
    if (bytes > 0) copies_.push_back({copy.dst, copy.src, bytes});
  }
  return copies_;
}

/// Whether the CPU is done with what the part needs or not: it is held up until open().
void HandedRun::give_to_device(ScheduledProgram::Part& part) {
  lanes_.wait_for_others(part.device);
  hand_over_.take(sized(part.in));
  const bool has_results = !part.out.empty() || part.writes_shared;
  // The CPU must not write where copies still read. Where the part has results, word of those is enough.
  if (!has_results && !part.in.empty()) given_ = hand_over_.give({});
  // What waits for the device while it is run can only be given when the CPU is done.
  if (!part.program->runs_ahead()) hand_over_.open();
  lanes_.run(part.device, *part.program, part.label, counts_, {});
  if (has_results) given_ = hand_over_.give(sized(part.out));
}

void HandedRun::run(ScheduledProgram& program, const StepCounts& counts, const StopToken& stop) {
  counts_ = counts;
  given_.reset();
  lanes_.copy(program.first_out, counts, stats_);
  int device = 0;
  std::size_t given_out = 0;  // parts that were
  for (std::size_t i = 0; i < program.parts.size(); ++i) {
    if (stop.stop != nullptr && stop.stop(stop.user)) throw Error(ErrorCode::cancelled, "the step was cancelled");
    ScheduledProgram::Part& part = program.parts[i];
    ++stats_.splits;
    stats_.nodes += part.n_nodes;
    if (part.device != 0) {
      device = part.device;
      if (i < given_out) continue;
      give_to_device(part);
      hand_over_.open();
      continue;
    }
    const std::optional<HandOver::Ticket> needed = given_;
    given_out = i + 1;
    while (given_out < program.parts.size() && program.parts[given_out].device != 0 &&
           program.parts[given_out].program->runs_ahead())
      give_to_device(program.parts[given_out++]);
    if (needed) hand_over_.await(*needed);
    lanes_.wait_for_others(0);
    lanes_.run(0, *part.program, part.label, counts, {});
    hand_over_.open();
  }
  lanes_.touched(device);
  lanes_.copy(program.last_in, counts, stats_);
}

}  // namespace ggml::sched
