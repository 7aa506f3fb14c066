#include "common/setup/measured_devices.h"

#include <array>
#include <utility>

#include "common/setup/output_file.h"
#include "common/setup/setup.h"
#include "ggml/log.h"

namespace common {

MeasuredDevices::MeasuredDevices(const Settings& settings)
    : settings_(settings), path_(settings.placement.device_profile) {
  if (path_.empty()) return;
  check_output(path_, std::array{settings.model.path});
  if (std::optional<DeviceProfile> found = DeviceProfile::read(path_)) profile_ = *std::move(found);
}

ProfiledDevice MeasuredDevices::key_of(const ggml::Device& device) const {
  ProfiledDevice key;
  key.name = device.name();
  key.description = device.description();
  key.memory_bytes = device.memory().total;
  if (device.id().v == 0) {
    const ThreadCounts threads = thread_counts(settings_);
    key.n_threads = threads.decode;
    key.n_threads_batch = threads.batch;
  }
  return key;
}

void MeasuredDevices::describe(ggml::Device& device, llama::PlanDevice& description) {
  if (path_.empty()) return;
  const ProfiledDevice key = key_of(device);
  if (profile_.find(key) == nullptr) {
    const ProfiledDevice* other = profile_.other(key);
    ggml::logf(ggml::LogLevel::info, "--device-profile %s: measuring %s (%s)%s", path_.c_str(), key.name.c_str(),
               key.description.c_str(),
               other == nullptr ? "" : ": it was measured with other memory, threads or another processor");
    profile_.set(
        key, key.n_threads > 0 ? measure_cpu(device, settings_.threads.cpu_isa, key.n_threads) : measure_card(device));
    is_new_ = true;
  }
  const DeviceSpeeds& speeds = *profile_.find(key);
  description.bandwidth = speeds.bandwidth;
  description.link = speeds.link;
  description.arithmetic = speeds.arithmetic;
  description.speeds = llama::SpeedSource::measured;
}

void MeasuredDevices::finish() const {
  if (is_new_) profile_.write(path_);
}

}  // namespace common
