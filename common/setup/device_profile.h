#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/setup/device_speeds.h"

namespace common {

/// A device as a profile knows it: other cards, more memory or another number of threads are another device.
struct ProfiledDevice {
  std::string name, description;  // "CUDA0", the processor's own name
  std::uint64_t memory_bytes = 0;
  int n_threads = 0, n_threads_batch = 0;  // of the CPU; cards: 0

  bool operator==(const ProfiledDevice&) const = default;
};

/// --device-profile: what the devices of a machine were found to do. Plans are made from it and never from a
/// measurement at the start, so that equal starts make equal plans. A value; thread-compatible.
class DeviceProfile {
 public:
  /// What the file says; nullopt where there is none. Throws Error(invalid_file) naming the file and what is wrong
  /// where.
  [[nodiscard]] static std::optional<DeviceProfile> read(const std::string& path);
  /// Through a file beside it, so that nobody reads half of it. Throws Error(io).
  void write(const std::string& path) const;

  /// Null: this device was not measured.
  [[nodiscard]] const DeviceSpeeds* find(const ProfiledDevice& device) const;
  /// Another device of that name, if one was measured: what became of it is for messages.
  [[nodiscard]] const ProfiledDevice* other(const ProfiledDevice& device) const;
  /// In the place of a device that is equal but for its speeds, or of the card that had the name.
  void set(const ProfiledDevice& device, const DeviceSpeeds& speeds);

 private:
  struct Entry {
    ProfiledDevice device;
    DeviceSpeeds speeds;
  };
  std::vector<Entry> entries_;
};

}  // namespace common
