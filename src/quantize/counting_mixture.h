#pragma once

#include <algorithm>
#include <map>

#include "ggml/error.h"
#include "quantize/mixture.h"

namespace llama {

/// A mixture whose rules ask how many tensors of a kind came before. Kind: an enum of the rules' own, with a member
/// `v` for the tensors that are counted as values.
template <class Kind>
class CountingMixture : public Mixture {
 public:
  CountingMixture(const MixRequest& request, int n_values) : r_(request), n_values_(n_values) {}

  ggml::DType choose(const MixTensor& tensor) final {
    const Kind kind = kind_of(tensor);
    const std::string_view chosen = rule(tensor, kind);
    ++count_[kind];
    if (chosen.empty()) return r_.type;
    const std::optional<ggml::DType> type = ggml::type_from_name(chosen);
    TANDEM_ASSERT(type.has_value(), "a rule names a type that is not there");
    return *type;
  }

 protected:
  [[nodiscard]] virtual Kind kind_of(const MixTensor& tensor) const = 0;
  /// Name of the type for the tensor; empty: that of the file type.
  [[nodiscard]] virtual std::string_view rule(const MixTensor& tensor, Kind kind) const = 0;

  [[nodiscard]] int count(Kind kind) const {
    const auto found = count_.find(kind);
    return found == count_.end() ? 0 : found->second;
  }
  /// With experts a layer's number, because a layer has several tensors of a kind; else a counter of the kind.
  [[nodiscard]] int ffn_layer(const MixTensor& tensor, Kind kind) const {
    return r_.facts.n_expert > 1 ? std::max(layer_of(tensor.name), 0) : count(kind);
  }
  /// Whether the next value tensor is one of those that get more bits.
  [[nodiscard]] bool more_bits_for_values() const { return use_more_bits(count(Kind::v), n_values_); }

  const MixRequest r_;

 private:
  int n_values_;
  std::map<Kind, int> count_;
};

}  // namespace llama
