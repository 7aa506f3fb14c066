#include "common/setup/device_profile.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "common/json/parse_json.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace common {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kAdvice = "Delete it: it is measured and written anew at the next start.";
constexpr double kFastest = 1e18;  // of anything

/// A place in a profile, for messages.
struct Place {
  const std::string& path;
  std::string key;

  [[noreturn]] void refuse(const std::string& expected, const Json* found) const {
    throw Error(ErrorCode::invalid_file,
                strf("error: --device-profile %s: %s: %s expected, %s found", path.c_str(), key.c_str(),
                     expected.c_str(), found == nullptr ? "nothing" : found->dump().substr(0, 60).c_str()),
                kAdvice);
  }
  [[nodiscard]] Place of(const std::string& name) const { return {path, key.empty() ? name : key + "." + name}; }
};

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string text_at(const Json& object, const char* key, const Place& place) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_string()) place.of(key).refuse("a text", value);
  return value->get<std::string>();
}

/// A whole number; absent: 0.
std::uint64_t count_at(const Json& object, const char* key, const Place& place) {
  const Json* value = member(object, key);
  if (value == nullptr) return 0;
  if (!value->is_number_unsigned()) place.of(key).refuse("a whole number", value);
  return value->get<std::uint64_t>();
}

double speed_at(const Json& object, const char* key, const Place& place) {
  const Json* value = member(object, key);
  const double speed = value != nullptr && value->is_number() ? value->get<double>() : 0.0;
  if (!(speed > 0.0 && speed < kFastest)) place.of(key).refuse("a number per second above 0", value);
  return speed;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (std::filesystem::is_directory(path) || !file || !(text << file.rdbuf()))
    throw Error(ErrorCode::io, strf("error: --device-profile %s: cannot be read", path.c_str()),
                "Give a file, or a name that is free: it is then written.");
  return text.str();
}

}  // namespace

std::optional<DeviceProfile> DeviceProfile::read(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed) && !failed) return std::nullopt;
  const Json document = parse_json(read_text(path), "error: --device-profile " + path + ": the file is", kAdvice);
  const Place top{path, ""};
  if (!document.is_object()) Place{path, "the file"}.refuse("an object", &document);
  if (const Json* version = member(document, "version"); version == nullptr || *version != kVersion)
    top.of("version").refuse(std::to_string(kVersion), version);
  const Json* devices = member(document, "devices");
  if (devices == nullptr || !devices->is_array()) top.of("devices").refuse("a list", devices);
  DeviceProfile profile;
  for (std::size_t i = 0; i < devices->size(); ++i) {
    const Json& object = (*devices)[i];
    const Place place = top.of(strf("devices[%zu]", i));
    if (!object.is_object()) place.refuse("an object", &object);
    Entry entry;
    entry.device.name = text_at(object, "name", place);
    entry.device.description = text_at(object, "description", place);
    entry.device.memory_bytes = count_at(object, "memory", place);
    entry.device.n_threads = static_cast<int>(count_at(object, "threads", place));
    entry.device.n_threads_batch = static_cast<int>(count_at(object, "threads_batch", place));
    entry.speeds.bandwidth = speed_at(object, "bandwidth", place);
    entry.speeds.arithmetic = speed_at(object, "arithmetic", place);
    if (entry.device.n_threads == 0) entry.speeds.link = speed_at(object, "link", place);
    profile.entries_.push_back(std::move(entry));
  }
  return profile;
}

void DeviceProfile::write(const std::string& path) const {
  Json devices = Json::array();
  for (const Entry& entry : entries_) {
    Json object = {
        {"name", entry.device.name}, {"description", entry.device.description}, {"memory", entry.device.memory_bytes}};
    if (entry.device.n_threads > 0) {
      object["threads"] = entry.device.n_threads;
      object["threads_batch"] = entry.device.n_threads_batch;
    } else {
      object["link"] = entry.speeds.link;
    }
    object["bandwidth"] = entry.speeds.bandwidth;
    object["arithmetic"] = entry.speeds.arithmetic;
    devices.push_back(std::move(object));
  }
  const Json document = {{"version", kVersion}, {"devices", std::move(devices)}};
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary);
  file << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0)
    throw Error(ErrorCode::io,
                strf("error: --device-profile %s: cannot be written: %s", path.c_str(), std::strerror(errno)),
                "Give a file in a folder that is there and may be written to.");
}

const DeviceSpeeds* DeviceProfile::find(const ProfiledDevice& device) const {
  for (const Entry& entry : entries_)
    if (entry.device == device) return &entry.speeds;
  return nullptr;
}

const ProfiledDevice* DeviceProfile::other(const ProfiledDevice& device) const {
  for (const Entry& entry : entries_)
    if (entry.device.name == device.name && !(entry.device == device)) return &entry.device;
  return nullptr;
}

void DeviceProfile::set(const ProfiledDevice& device, const DeviceSpeeds& speeds) {
  // The CPU may be there with several numbers of threads.
  const auto replaces = [&](const Entry& entry) {
    return entry.device.name == device.name && entry.device.n_threads == device.n_threads &&
           entry.device.n_threads_batch == device.n_threads_batch;
  };
  const auto old = std::find_if(entries_.begin(), entries_.end(), replaces);
  if (old != entries_.end())
    *old = {device, speeds};
  else
    entries_.push_back({device, speeds});
}

}  // namespace common
