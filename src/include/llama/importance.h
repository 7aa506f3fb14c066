#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace llama {

/// How much each column of each weight counts, as sums over the inputs that a text gave it.
class ImportanceMatrix {
 public:
  struct Entry {
    std::int64_t columns = 0;        // row length of the weight
    std::vector<float> square_sums;  // [columns, matrices]: sums of x^2; one matrix, or one per expert
    std::vector<float> counts;       // [matrices]: rows that were summed
    [[nodiscard]] std::int64_t matrices() const { return static_cast<std::int64_t>(counts.size()); }
  };

  std::map<std::string, Entry, std::less<>> entries;  // by GGUF tensor name
  std::vector<std::string> datasets;
  std::int64_t chunks = 0;      // pieces of text that were read
  std::int64_t chunk_size = 0;  // tokens in each; 0: unknown

  /// Reads a file of either format (by its first bytes). Throws Error(invalid_file | io | not_found) naming file, entry
  /// and cause: negative or non-finite sums are refused.
  static ImportanceMatrix load(const std::string& path);
  /// Writes the file under a temporary name and renames it. Entries no row reached are left out. Throws Error(io).
  void save_gguf(const std::string& path) const;
  /// The older format: mean squares times calls; experts that no row reached get the neutral weight 1.
  void save_legacy(const std::string& path) const;

  /// Adds the sums of `other`. Throws Error(invalid_argument) where a weight has another shape in it.
  void merge(const ImportanceMatrix& other);

  /// Mean squares [columns, matrices] of an entry; 1 for every column of a matrix that no row reached.
  [[nodiscard]] static std::vector<float> means(const Entry& entry);
};

}  // namespace llama
