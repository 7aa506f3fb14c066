// The log, and the options that print something and end (parse() acts on those itself).
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kGeneral = "General";
constexpr std::string_view kLog = "Log";
constexpr int kEverything = 5;

const std::vector<Option> kGeneralRows = {
    option({"-h", "--usage", "--help"}, "", "Print this help and end."),
    option({"--version"}, "", "Print the version and how it was built, and end."),
    option({"--completion-bash"}, "",
           "Print a completion script for bash, and end: source <(PROGRAM --completion-bash)."),
};

const std::vector<Option> kLogRows = {
    option({"--log-disable"}, "", "No log at all.", toggle([](Settings& s) -> auto& { return s.log.disabled; })),
    option({"--log-enable"}, "", "The opposite.",
           [](Target& target, const Argument&) { target.settings.log.disabled = false; }),
    option({"--log-file"}, "FNAME", "Write the log to a file too.",
           text([](Settings& s) -> auto& { return s.log.file; }))
        .variable("LLAMA_ARG_LOG_FILE")
        .variable("LLAMA_LOG_FILE"),
    option({"--log-colors"}, "on|off|auto", "Colours in the log; bare: on.",
           [](Target& target, const Argument& argument) {
             target.settings.log.colors =
                 argument.bare() ? Tristate::on : to_tristate(argument, argument.value(), true);
           })
        .words({"on", "off", "auto", "enabled", "disabled", "true", "false", "0", "1", "-1"})
        .variable("LLAMA_ARG_LOG_COLORS")
        .variable("LLAMA_LOG_COLORS")
        .initially("auto: on a terminal, unless NO_COLOR is set"),
    option({"-v", "--verbose", "--log-verbose"}, "", "Log everything.",
           [](Target& target, const Argument&) { target.settings.log.verbosity = kEverything; }),
    option({"-lv", "--verbosity", "--log-verbosity"}, "N",
           "What is logged: 0 nothing, 1 errors, 2 warnings, 3 information, 4 decisions, 5 and above everything.",
           whole(
               [](Settings& s) -> auto& { return s.log.verbosity; }, 0))
        .variable("LLAMA_ARG_LOG_VERBOSITY")
        .variable("LLAMA_LOG_VERBOSITY")
        .initially("3"),
    option({"--log-prefix"}, "", "Level in front of each line.",
           toggle([](Settings& s) -> auto& { return s.log.prefix; }))
        .negative({"--no-log-prefix"})
        .variable("LLAMA_ARG_LOG_PREFIX")
        .variable("LLAMA_LOG_PREFIX")
        .initially("off"),
    option({"--log-timestamps"}, "", "Time in front of each line.",
           toggle([](Settings& s) -> auto& { return s.log.timestamps; }))
        .negative({"--no-log-timestamps"})
        .variable("LLAMA_ARG_LOG_TIMESTAMPS")
        .variable("LLAMA_LOG_TIMESTAMPS")
        .initially("off"),
    option({"--log-format"}, "text|json", "Form of the log's lines.",
           [](Target& target, const Argument& argument) {
             target.settings.log.json = to_word(argument, Words<bool>{{"text", false}, {"json", true}});
           })
        .initially("text"),
    option({"--minilog"}, "", "Leave out the lines about loading the model.",
           [](Target& target, const Argument&) { target.settings.log.verbosity = 2; }),
    option({"--log-prompts-dir"}, "DIR", "Folder for the prompts of all requests.")
        .used_by(kGenerators)
        .refused("prompt logs", "use -v, which logs prompts"),
    option({"-ld", "--logdir"}, "DIR", "Folder for logs.").no_effect("use --log-file"),
    option({"--log-test"}, "", "Test of the log.").no_effect("it is a test of another program"),
    option({"--log-new"}, "", "A new log file per run.").no_effect("use --log-file with another name"),
    option({"--log-append"}, "", "Append to the log file.").no_effect("that is always so"),
};

}  // namespace

void add_log_options(std::vector<Option>& table) {
  for (Option row : kGeneralRows) {
    row.group = kGeneral;
    row.tools = kEveryTool;
    table.push_back(std::move(row));
  }
  for (Option row : kLogRows) {
    row.group = kLog;
    row.tools = kEveryTool;
    table.push_back(std::move(row));
  }
}

}  // namespace common
