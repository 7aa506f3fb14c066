#include "common/setup/run_tool.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include "common/log/standard_output.h"
#include "common/setup/old_names.h"
#include "common/setup/planned_run.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace common {
namespace {

int run_or_plan(Tool tool, const Settings& settings, int (*run)(const Settings& settings)) {
  constexpr int kVerbose = 4;
  if (settings.model.list_devices) {
    print_devices(settings, settings.log.verbosity >= kVerbose);
    return 0;
  }
  // llama-bench has a plan for each of its tests.
  if (settings.placement.dry_run == DryRun::off || tool == Tool::bench) return run(settings);
  return print_plan(plan_run(settings, sequences_of(tool, settings)), settings);
}

/// What reads a key of the model long after its file was opened (chat template, sampling defaults) does not know the
/// file's name.
ggml::Error with_file_name(const ggml::Error& error, const Settings& settings) {
  if (error.code() != ggml::ErrorCode::invalid_file || !error.message().starts_with("metadata key ")) return error;
  return {error.code(), settings.model.path + ": " + error.message(), error.hint()};
}

/// A model's file is read where it is mapped, so its loss is a signal and no error: the process says why it ends.
void explain_bus_error(int) {
  constexpr std::string_view kText =
      "error: a mapped file can no longer be read: the model's file has become shorter, its disk has failed or "
      "is gone. Start again when the file is whole; --no-mmap reads it into memory at the start\n";
  (void)!write(STDERR_FILENO, kText.data(), kText.size());  // then the access is made again, and the signal ends all
}

void explain_bus_errors() {
  struct sigaction action {};
  action.sa_handler = explain_bus_error;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGBUS, &action, nullptr);
}

void report(const ggml::Error& error) {
  // Errors about options are whole lines, as those that the parser finds.
  if (std::string_view(error.what()).starts_with("error")) {
    std::fprintf(stderr, "%s\n", error.what());
    if (!error.hint().empty()) std::fprintf(stderr, "%s\n", error.hint().c_str());
    return;
  }
  ggml::logf(ggml::LogLevel::error, "%s%s%s", error.what(), error.hint().empty() ? "" : ": ", error.hint().c_str());
}

}  // namespace

int run_tool(Tool tool, int argc, const char* const* argv, int (*run)(const Settings& settings)) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit shall be an error with a message, as a full disk is
  explain_bus_errors();
  try {
    follow_old_name(tool, argc, argv);
  } catch (const ggml::Error& error) {
    report(error);
    return 1;
  }
  const Parsed parsed = parse_or_exit(tool, argc, argv);
  try {
    const int status = run_or_plan(tool, parsed.settings, run);
    flush_standard_output();
    return status;
  } catch (const DoesNotFit& error) {
    report(error);
    return kDoesNotFit;
  } catch (const ggml::Error& error) {
    report(with_file_name(error, parsed.settings));
  } catch (const std::bad_alloc&) {
    ggml::logf(ggml::LogLevel::error, "out of memory");
  } catch (const std::exception& error) {
    ggml::logf(ggml::LogLevel::error, "an internal error, please report it: %s", error.what());
  }
  return 1;
}

}  // namespace common
