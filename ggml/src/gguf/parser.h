#pragma once

#include <vector>

#include "cursor.h"
#include "ggml/gguf.h"

namespace ggml::gguf {

/// Turns one header into a File with one shard. Every check of spec/gguf.md section 7 is here.
class Parser {
 public:
  explicit Parser(Cursor cursor) : in_(std::move(cursor)) {}
  File run();

 private:
  struct Counts {
    std::uint64_t tensors = 0;
    std::uint64_t keys = 0;
  };

  Counts read_header();
  void read_metadata(std::uint64_t n_keys);
  Value read_value();
  Value read_array();
  void read_alignment();
  void read_tensors(std::uint64_t n_tensors);
  void read_tensor();
  void read_shape(TensorInfo& tensor);
  void read_type(TensorInfo& tensor);
  void place_tensors();

  Cursor in_;
  File file_;
  Shard shard_;
  std::uint64_t alignment_at_ = 0;        // where the value of general.alignment is stored
  std::vector<std::uint64_t> offset_at_;  // where the offset of each tensor is stored, for messages
};

}  // namespace ggml::gguf
