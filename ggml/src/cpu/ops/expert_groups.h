#pragma once

#include <cstdint>

namespace ggml::cpu {

/// (token, used expert) pairs ordered by expert: "position" s holds a pair, the positions of one expert are neighbours.
/// A view of caller's memory, [words(n_pairs, n_expert)] i32.
class ExpertGroups {
 public:
  ExpertGroups(std::int32_t* memory, std::int64_t max_pairs, int n_expert) noexcept
      : head_(memory),
        token_(memory + kHead),
        position_(token_ + max_pairs),
        expert_(position_ + max_pairs),
        begin_(expert_ + n_expert) {}

  [[nodiscard]] static std::int64_t words(std::int64_t max_pairs, int n_expert) noexcept {
    return kHead + 2 * max_pairs + 2 * std::int64_t{n_expert} + 1;
  }

  struct Pairs {
    const std::int32_t* ids = nullptr;  // [n_used, n_tokens]
    std::int64_t n_tokens = 0;
    int n_used = 0;
    int expert_begin = 0, expert_end = 0;  // others are skipped
  };
  /// Orders the pairs: a counting sort, so pairs of one expert stay in the order of their tokens.
  void build(const Pairs& pairs) noexcept;

  [[nodiscard]] int n_groups() const noexcept { return head_[0]; }     // experts with at least one pair
  [[nodiscard]] int n_positions() const noexcept { return head_[1]; }  // pairs that are not skipped
  [[nodiscard]] int expert(std::int64_t group) const noexcept { return expert_[group]; }
  [[nodiscard]] std::int64_t begin(std::int64_t group) const noexcept { return begin_[group]; }
  [[nodiscard]] std::int64_t size(std::int64_t group) const noexcept { return begin_[group + 1] - begin_[group]; }
  [[nodiscard]] const std::int32_t* tokens(std::int64_t group) const noexcept { return token_ + begin_[group]; }
  /// Position of pair [used, token], -1 when it is skipped.
  [[nodiscard]] std::int32_t position(std::int64_t pair) const noexcept { return position_[pair]; }

 private:
  static constexpr int kHead = 2;
  std::int32_t* head_;
  std::int32_t* token_;     // [positions] the pair's token
  std::int32_t* position_;  // [pairs]
  std::int32_t* expert_;    // [groups]
  std::int32_t* begin_;     // [groups + 1] first position
};

}  // namespace ggml::cpu
