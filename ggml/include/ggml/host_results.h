#pragma once

#include <cstddef>
#include <optional>

#include "ggml/graph.h"

namespace ggml {

/// What a Program may offer besides when its device writes results into host memory by itself: the host need not touch
/// them.
class HostResults {
 public:
  virtual ~HostResults() = default;
  /// The next run puts a result to `to`, memory of the device's kind host_pinned, instead of the port's own. False: it
  /// cannot, and nothing changes.
  [[nodiscard]] virtual bool send_result(PortId port, std::byte* to) = 0;
  /// Whether the last run's results have values that are no numbers; to be asked when the run is done. Nullopt: nobody
  /// has looked.
  [[nodiscard]] virtual std::optional<bool> gave_nan() const = 0;
};

}  // namespace ggml
