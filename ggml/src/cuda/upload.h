#pragma once

#include <array>
#include <cstddef>

#include "cuda/resources.h"
#include "ggml/device.h"

namespace ggml::cuda {

/// Whether rows of weights of this type can be brought to a card as they are in the file.
[[nodiscard]] bool can_upload(DType type) noexcept;

/// Brings parts of weights from host memory to a card. Pieces of them land in a ring of places on the card, from where
/// a kernel rewrites them to planes while the next ones arrive. Thread-compatible.
class Upload {
 public:
  static constexpr std::size_t kPlaces = 4;
  static constexpr std::size_t kPlaceBytes = std::size_t{8} << 20;
  static constexpr std::size_t kLandingBytes = kPlaces * kPlaceBytes;

  /// Pre: the card is the current one.
  Upload() = default;

  /// The copies go to `copies`, the kernels to `rewrites`: streams of the current card, which may be the same. Pre:
  /// can_upload(rows.type). `landing`: kLandingBytes of the card.
  void rows(const WeightRows& rows, std::byte* dst, std::byte* landing, cudaStream_t copies, cudaStream_t rewrites);

 private:
  struct Place {
    Marker landed, taken;
    bool used = false;
  };
  std::array<Place, kPlaces> places_;
  std::size_t next_ = 0;
};

}  // namespace ggml::cuda
