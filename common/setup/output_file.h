#pragma once

#include <span>
#include <string>

namespace common {

/// Refuses an output that would destroy what a run reads, or that is there and no regular file (a device, a folder).
/// `inputs`: files of the run; empty names are skipped. Throws Error(invalid_argument) naming both.
void check_output(const std::string& output, std::span<const std::string> inputs);

}  // namespace common
