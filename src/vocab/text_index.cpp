#include "text_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ggml/error.h"

namespace llama {

std::uint64_t hash_text(std::string_view text) noexcept {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15U;
  std::uint64_t h = text.size() * kMultiplier;
  const char* p = text.data();
  std::size_t left = text.size();
  while (left >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    h = (std::rotl(h, 23) ^ word) * kMultiplier;
    p += 8;
    left -= 8;
  }
  if (left > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, left);
    h = (std::rotl(h, 23) ^ word) * kMultiplier;
  }
  return h ^ (h >> 32);
}

namespace {

// Tables stay at most half full, so that a miss, the usual outcome of a look-up, ends after a slot or two.
std::size_t table_size(std::size_t expected) {
  return std::bit_ceil(std::max<std::size_t>(16, 2 * expected));
}

}  // namespace

void TextIndex::reserve(std::size_t expected) {
  if (const std::size_t wanted = table_size(expected); wanted > slots_.size()) grow(wanted);
}

void TextIndex::grow(std::size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.data != nullptr) slots_[slot_of({slot.data, slot.size})] = slot;
  }
}

std::size_t TextIndex::slot_of(std::string_view text) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash_text(text) & mask;
  while (slots_[i].data != nullptr && std::string_view(slots_[i].data, slots_[i].size) != text) i = (i + 1) & mask;
  return i;
}

bool TextIndex::insert(std::string_view text, Token id) {
  TANDEM_ASSERT(text.data() != nullptr, "a key of the text index needs storage");
  if (2 * (used_ + 1) > slots_.size()) grow(2 * slots_.size());
  Slot& slot = slots_[slot_of(text)];
  if (slot.data != nullptr) return false;
  slot = {text.data(), static_cast<std::uint32_t>(text.size()), id};
  ++used_;
  longest_ = std::max(longest_, text.size());
  return true;
}

Token TextIndex::find(std::string_view text) const noexcept {
  if (text.size() > longest_) return kNoToken;
  return slots_[slot_of(text)].id;
}

MergeIndex::MergeIndex(std::size_t expected) : slots_(table_size(expected)), mask_(slots_.size() - 1) {}

void MergeIndex::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = pack(left, right);
  std::size_t i = mix(key) & mask_;
  while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
  if (slots_[i].key == kFree) slots_[i] = {key, merge};
}

}  // namespace llama
