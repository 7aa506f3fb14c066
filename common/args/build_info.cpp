#include "common/args/build_info.h"

namespace common {

std::string_view build_version() noexcept {
  return TANDEM_VERSION;
}
std::string_view build_commit() noexcept {
  return TANDEM_COMMIT;
}
int build_number() noexcept {
  return TANDEM_BUILD_NUMBER;
}
std::string_view build_compiler() noexcept {
  return TANDEM_COMPILER;
}

}  // namespace common
