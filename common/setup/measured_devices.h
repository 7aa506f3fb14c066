#pragma once

#include <string>

#include "common/args/settings.h"
#include "common/setup/device_profile.h"
#include "ggml/device.h"
#include "llama/plan.h"

namespace common {

/// The use of --device-profile at a start: devices that the file knows get its speeds, others are measured, and the
/// file then knows them too.
class MeasuredDevices {
 public:
  /// Reads the file. Throws Error where it is damaged or cannot be written to.
  explicit MeasuredDevices(const Settings& settings);

  /// Fills in the speeds of a device that is there. Without --device-profile they stay as they are.
  void describe(ggml::Device& device, llama::PlanDevice& description);
  /// Writes what is new.
  void finish() const;

 private:
  [[nodiscard]] ProfiledDevice key_of(const ggml::Device& device) const;

  const Settings& settings_;
  std::string path_;  // empty: no file
  DeviceProfile profile_;
  bool is_new_ = false;
};

}  // namespace common
