#include "kv/state_cache.h"

#include <algorithm>

#include "ggml/error.h"

namespace llama {

namespace {

// The present state and the two that a step may leave.
constexpr int kSlotsBesideCheckpoints = 3;

constexpr BlockId kNone{-1};

int slots_of(const StateSpec& spec, int n_sequences) {
  return n_sequences * (spec.n_checkpoints + kSlotsBesideCheckpoints);
}

}  // namespace

std::size_t state_layer_bytes(const StateSpec& spec, int n_sequences) {
  return static_cast<std::size_t>(slots_of(spec, n_sequences)) * static_cast<std::size_t>(spec.slot_floats) *
         sizeof(float);
}

StateCache::StateCache(const StateSpec& spec, int n_sequences, std::span<ggml::Device* const> devices)
    : spec_(spec), pool_(slots_of(spec, n_sequences)), sequences_(static_cast<std::size_t>(n_sequences)) {
  bases_.resize(spec.layers.size(), nullptr);
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::vector<std::size_t> here;
    for (std::size_t i = 0; i < spec.layers.size(); ++i)
      if (device_of(i).v == static_cast<std::int32_t>(d)) here.push_back(i);
    if (here.empty()) continue;
    memory_.push_back(devices[d]->allocate(here.size() * layer_bytes(), ggml::BufferKind::device));
    for (std::size_t k = 0; k < here.size(); ++k) bases_[here[k]] = memory_.back()->data() + k * layer_bytes();
  }
  for (Sequence& sequence : sequences_)
    sequence.snapshots.reserve(static_cast<std::size_t>(spec.n_checkpoints) + kSlotsBesideCheckpoints);
}

std::size_t StateCache::layer_bytes() const {
  return static_cast<std::size_t>(pool_.total()) * static_cast<std::size_t>(spec_.slot_floats) * sizeof(float);
}

std::size_t StateCache::state_bytes() const {
  return spec_.layers.size() * static_cast<std::size_t>(spec_.slot_floats) * sizeof(float);
}

void StateCache::append(SeqId seq, int n) {
  Sequence& sequence = of(seq);
  TANDEM_ASSERT(!sequence.next.valid(), "a step was neither settled nor rolled back");
  sequence.next = pool_.take();
  if (n > 1 && spec_.n_checkpoints > 0) sequence.before_last = pool_.take();
}

StateCache::Slots StateCache::slots(SeqId seq, bool first, bool last) const {
  const Sequence& sequence = of(seq);
  const std::int32_t present = sequence.snapshots.empty() ? -1 : sequence.snapshots.back().slot.v;
  return {first ? present : sequence.next.v, sequence.next.v, last ? sequence.before_last.v : -1};
}

void StateCache::settle(SeqId seq, int length) {
  Sequence& sequence = of(seq);
  if (!sequence.next.valid()) return;
  if (!sequence.snapshots.empty() && !sequence.snapshots.back().checkpoint)
    drop(sequence, sequence.snapshots.size() - 1);
  // A step of several tokens is a prompt or a part of one: others may go on from its end, or from just before it when
  // the same prompt comes again, of which at least one token must be evaluated.
  const bool prompt = sequence.before_last.valid();
  if (prompt) sequence.snapshots.push_back({length - 1, sequence.before_last, true});
  sequence.snapshots.push_back({length, sequence.next, prompt});
  sequence.next = sequence.before_last = kNone;
  thin(sequence);
}

/// Down to the checkpoints that may be kept: those go first whose neighbours are nearest.
void StateCache::thin(Sequence& sequence) {
  std::vector<Snapshot>& all = sequence.snapshots;
  while (static_cast<int>(all.size()) > spec_.n_checkpoints + 1) {
    std::size_t victim = 0;
    int least = all.size() > 1 ? all[1].length : 0;
    for (std::size_t i = 1; i + 1 < all.size(); ++i) {
      const int gap = all[i + 1].length - all[i - 1].length;
      // The one right before the present is what a repeated prompt needs.
      if (i + 2 == all.size() && all.size() > 2 && spec_.n_checkpoints > 1) continue;
      if (gap < least) {
        least = gap;
        victim = i;
      }
    }
    drop(sequence, victim);
  }
}

void StateCache::drop(Sequence& sequence, std::size_t index) {
  pool_.release(sequence.snapshots[index].slot);
  sequence.snapshots.erase(sequence.snapshots.begin() + static_cast<std::ptrdiff_t>(index));
}

void StateCache::drop_pending(Sequence& sequence) {
  if (sequence.next.valid()) pool_.release(sequence.next);
  if (sequence.before_last.valid()) pool_.release(sequence.before_last);
  sequence.next = sequence.before_last = kNone;
}

void StateCache::roll_back(SeqId seq, int length) {
  Sequence& sequence = of(seq);
  drop_pending(sequence);
  while (!sequence.snapshots.empty() && sequence.snapshots.back().length > length)
    drop(sequence, sequence.snapshots.size() - 1);
}

int StateCache::resume_point(SeqId seq, int length) const {
  int best = 0;
  for (const Snapshot& snapshot : of(seq).snapshots)
    if (snapshot.length <= length) best = snapshot.length;
  return best;
}

void StateCache::share(SeqId dst, SeqId src, int length) {
  Sequence& to = of(dst);
  TANDEM_ASSERT(to.snapshots.empty(), "share() into a sequence that has states");
  for (Snapshot snapshot : of(src).snapshots) {
    if (snapshot.length > length) break;
    snapshot.checkpoint = true;
    pool_.retain(snapshot.slot);
    to.snapshots.push_back(snapshot);
  }
  thin(to);
}

void StateCache::check_integrity(std::span<const int> lengths) const {
  pool_.check_integrity();
  std::vector<int> seen(static_cast<std::size_t>(pool_.total()), 0);
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    int before = 0;
    for (const Snapshot& snapshot : sequence.snapshots) {
      TANDEM_ASSERT(snapshot.length > before || (snapshot.length == 0 && before == 0), "states are out of order");
      before = snapshot.length;
      ++seen[static_cast<std::size_t>(snapshot.slot.v)];
    }
    TANDEM_ASSERT(before == lengths[i], "a sequence's present state is not that of its length");
    if (sequence.next.valid()) ++seen[static_cast<std::size_t>(sequence.next.v)];
    if (sequence.before_last.valid()) ++seen[static_cast<std::size_t>(sequence.before_last.v)];
  }
  for (int slot = 0; slot < pool_.total(); ++slot)
    TANDEM_ASSERT(seen[static_cast<std::size_t>(slot)] == pool_.references(BlockId(slot)),
                  "a state's reference count is not the number of sequences that hold it");
}

}  // namespace llama
