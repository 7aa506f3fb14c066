#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace llama {

/// The merges that are open in a word, taken by (key, left): the lowest key first, in a key from left to right. One
/// heap over all of them, the best for words that fit the cache. `Entry` has a member `left`.
template <class Entry>
class HeapQueue {
 public:
  void push(std::uint32_t key, const Entry& entry) {
    heap_.push_back({key, entry});
    std::push_heap(heap_.begin(), heap_.end(), worse);
  }

  /// Takes the first entry; false when there is none.
  bool pop(std::uint32_t& key, Entry& entry) {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), worse);
    key = heap_.back().key;
    entry = heap_.back().entry;
    heap_.pop_back();
    return true;
  }

 private:
  struct Keyed {
    std::uint32_t key;
    Entry entry;
  };
  static bool worse(const Keyed& a, const Keyed& b) {
    return a.key != b.key ? a.key > b.key : a.entry.left > b.entry.left;
  }
  std::vector<Keyed> heap_;
};

/// The same for long words.
///
/// A word of one repeated character has as many open merges as characters, but only a handful of different keys. So
/// they lie in a bucket per key, which fills from left to right by itself, and only the keys are in a heap: taking one
/// costs a step to the next element, where one heap over all of them costs a logarithm of cache misses (10 MB of
/// spaces: a fifth of the time).
template <class Entry>
class BucketQueue {
 public:
  /// Words of more symbols than this are worth a table of all keys.
  static constexpr std::size_t kWorthwhile = 1024;

  /// Pre: empty. Keys are below `n_keys`.
  void reserve_keys(std::size_t n_keys) {
    if (bucket_of_.size() < n_keys) bucket_of_.resize(n_keys, kNone);
  }

  void push(std::uint32_t key, const Entry& entry) {
    if (bucket_of_[key] == kNone) open(key);
    Bucket& bucket = buckets_[bucket_of_[key]];
    const bool in_order = bucket.entries.empty() || !(entry.left < bucket.entries.back().left);
    if (in_order || bucket.next == 0) {
      bucket.sorted = bucket.sorted && in_order;
      bucket.entries.push_back(entry);
    } else {
      bucket.late.push_back(entry);
      std::push_heap(bucket.late.begin(), bucket.late.end(), later);
    }
  }

  /// Takes the first entry; false when there is none.
  bool pop(std::uint32_t& key, Entry& entry) {
    while (!keys_.empty()) {
      key = keys_.front();
      Bucket& bucket = buckets_[bucket_of_[key]];
      if (!bucket.sorted) {
        std::sort(bucket.entries.begin(), bucket.entries.end(),
                  [](const Entry& a, const Entry& b) { return a.left < b.left; });
        bucket.sorted = true;
      }
      const bool has_next = bucket.next < bucket.entries.size();
      if (!bucket.late.empty() && (!has_next || bucket.late.front().left < bucket.entries[bucket.next].left)) {
        std::pop_heap(bucket.late.begin(), bucket.late.end(), later);
        entry = bucket.late.back();
        bucket.late.pop_back();
        return true;
      }
      if (has_next) {
        entry = bucket.entries[bucket.next++];
        return true;
      }
      close(key);
    }
    return false;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Bucket {
    std::vector<Entry> entries;
    std::size_t next = 0;
    bool sorted = true;
    std::vector<Entry> late;  // a heap: what came out of order after the first was taken
  };
  static bool later(const Entry& a, const Entry& b) { return a.left > b.left; }

  void open(std::uint32_t key) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(buckets_.size()));
      buckets_.emplace_back();
    }
    bucket_of_[key] = free_.back();
    free_.pop_back();
    keys_.push_back(key);
    std::push_heap(keys_.begin(), keys_.end(), std::greater<>{});
  }

  void close(std::uint32_t key) {
    Bucket& bucket = buckets_[bucket_of_[key]];
    bucket.entries.clear();
    bucket.next = 0;
    free_.push_back(std::exchange(bucket_of_[key], kNone));
    std::pop_heap(keys_.begin(), keys_.end(), std::greater<>{});
    keys_.pop_back();
  }

  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> free_;       // buckets without a key
  std::vector<std::uint32_t> bucket_of_;  // [n_keys]
  std::vector<std::uint32_t> keys_;       // a heap of the open ones
};

}  // namespace llama
