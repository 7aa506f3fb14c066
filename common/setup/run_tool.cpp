#include "common/setup/run_tool.h"

#include <exception>
#include <new>

#include "common/log/standard_output.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace common {

int run_tool(Tool tool, int argc, const char* const* argv, int (*run)(const Settings& settings)) {
  const Parsed parsed = parse_or_exit(tool, argc, argv);
  try {
    const int status = run(parsed.settings);
    flush_standard_output();
    return status;
  } catch (const ggml::Error& error) {
    ggml::logf(ggml::LogLevel::error, "%s%s%s", error.what(), error.hint().empty() ? "" : ": ", error.hint().c_str());
  } catch (const std::bad_alloc&) {
    ggml::logf(ggml::LogLevel::error, "out of memory");
  } catch (const std::exception& error) {
    ggml::logf(ggml::LogLevel::error, "%s", error.what());
  }
  return 1;
}

}  // namespace common
