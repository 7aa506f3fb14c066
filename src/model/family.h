#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "model/hparams.h"
#include "model/schema.h"

namespace llama {

class KeyReader;
class LayerBuilder;

/// An architecture: what it reads, which tensors it has, what one layer computes. One file in families/ and one row in
/// families.def each.
struct Family {
  std::string_view arch;
  /// Reads the family's own keys, after the generic ones; problems go to the reader.
  void (*hparams)(KeyReader& keys, Hparams& hparams);
  std::span<const TensorRow> tensors;
  /// Adds the layer's nodes; input and output are the builder's residual stream.
  void (*layer)(LayerBuilder& b);
};

/// The family of `arch`, null when there is none.
[[nodiscard]] const Family* find_family(std::string_view arch) noexcept;
[[nodiscard]] std::vector<std::string_view> family_names();
/// Whether files of this architecture exist and are left to a later version.
[[nodiscard]] bool is_known_unsupported(std::string_view arch) noexcept;

}  // namespace llama
