// The prompt, the conversation of llama-cli, and llama-tokenize.
#include <fstream>

#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kPrompt = "Prompt and conversation";
constexpr std::string_view kTokenizeGroup = "Tokenizing";
constexpr std::string_view kNotSaved = "prompts are not saved; each start computes its own";
constexpr std::string_view kLeaveOut = "leave it out";

void apply_prompt(Target& target, const Argument& argument) {
  target.settings.prompt.prompt = argument.value();
}

/// A text file's last newline is the editor's, not the user's.
void apply_prompt_file(Target& target, const Argument& argument) {
  std::string text = read_file(argument, argument.value());
  if (text.ends_with('\n')) text.pop_back();
  target.settings.prompt.prompt = std::move(text);
  target.settings.prompt.prompt_file = argument.value();
}

void apply_binary_file(Target& target, const Argument& argument) {
  target.settings.prompt.prompt = read_file(argument, argument.value());
}

void apply_system_file(Target& target, const Argument& argument) {
  std::string text = read_file(argument, argument.value());
  if (text.ends_with('\n')) text.pop_back();
  target.settings.prompt.system_prompt = std::move(text);
}

const std::vector<Option> kPromptRows = {
    option({"-p", "--prompt"}, "PROMPT", "Text to begin with.", apply_prompt).used_by(kCli | kTokenize | kScorers),
    option({"-f", "--file"}, "FNAME", "The same from a file.", apply_prompt_file).used_by(kCli | kTokenize | kScorers),
    option({"-bf", "--binary-file"}, "FNAME", "The same from a file, byte by byte.", apply_binary_file)
        .used_by(kCli | kScorers),
    option({"-sys", "--system-prompt"}, "PROMPT", "System message of the chat.",
           text([](Settings& s) -> auto& { return s.prompt.system_prompt; })),
    option({"-sysf", "--system-prompt-file"}, "FNAME", "The same from a file.", apply_system_file),
    option({"-spf"}, "FNAME", "System prompt file of the server.")
        .used_by(kServer)
        .no_effect_warning("send a system message with each request"),
    option({"-n", "--predict", "--n-predict"}, "N",
           "Tokens to generate; -1: no limit, -2: until the context is full. llama-sweep-bench: tokens per row.",
           whole(
               [](Settings& s) -> auto& { return s.prompt.n_predict; }, -2))
        .variable("LLAMA_ARG_N_PREDICT")
        .used_by(kGenerators | kSweepBench)
        .initially("-1"),
    option({"-e", "--escape"}, "", "Replace the escapes \\n, \\t, \\\", \\', \\\\ and \\xHH in prompts.",
           toggle([](Settings& s) -> auto& { return s.prompt.escape; }))
        .negative({"--no-escape"})
        .used_by(kGenerators | kTokenize | kScorers)
        .initially("on; llama-perplexity and llama-imatrix: off"),
    option({"-cnv", "--conversation"}, "", "Chat with the model through its template.",
           [](Target& target, const Argument& argument) {
             target.settings.prompt.conversation = argument.negative ? Tristate::off : Tristate::on;
           })
        .negative({"-no-cnv", "--no-conversation"})
        .initially("on if the model has a chat template"),
    option({"-st", "--single-turn"}, "", "End after the first answer.",
           toggle([](Settings& s) -> auto& { return s.prompt.single_turn; }))
        .initially("off"),
    option({"-i", "--interactive"}, "", "Without a chat: wait for input after each answer; it continues the text.",
           toggle([](Settings& s) -> auto& { return s.prompt.interactive; })),
    option({"-if", "--interactive-first"}, "", "Without a chat: wait for input before the first answer too.",
           toggle([](Settings& s) -> auto& { return s.prompt.interactive_first; })),
    option({"-mli", "--multiline-input"}, "",
           "Input ends with a line that has a / at its end; otherwise a \\ at its end goes on in the next line.",
           toggle([](Settings& s) -> auto& { return s.prompt.multiline_input; })),
    option({"--in-prefix"}, "S", "Text in front of each input.",
           text([](Settings& s) -> auto& { return s.prompt.in_prefix; })),
    option({"--in-prefix-bos"}, "", "With -i: begin each input with the BOS token.",
           toggle([](Settings& s) -> auto& { return s.prompt.in_prefix_bos; })),
    option({"--in-suffix"}, "S", "Text behind each input.",
           text([](Settings& s) -> auto& { return s.prompt.in_suffix; })),
    option({"-r", "--reverse-prompt"}, "S", "Text at which the model stops; repeatable.",
           [](Target& target, const Argument& argument) {
             target.settings.prompt.reverse_prompts.push_back(argument.value());
           })
        .used_by(kGenerators)
        .list(),
    option({"-sp", "--special"}, "", "Print special tokens.",
           toggle([](Settings& s) -> auto& { return s.prompt.special; }))
        .used_by(kGenerators)
        .initially("off"),
    option({"--display-prompt"}, "", "Print the prompt in front of the answer.",
           toggle([](Settings& s) -> auto& { return s.prompt.display_prompt; }))
        .negative({"--no-display-prompt"})
        .initially("on"),
    option({"--verbose-prompt"}, "", "Print the prompt's tokens before generating.",
           toggle([](Settings& s) -> auto& { return s.prompt.verbose_prompt; }))
        .initially("off"),
    option({"--show-timings"}, "", "Print timings at the end.",
           toggle([](Settings& s) -> auto& { return s.prompt.show_timings; }))
        .negative({"--no-show-timings"})
        .variable("LLAMA_ARG_SHOW_TIMINGS")
        .initially("on"),
    option({"-co", "--color"}, "on|off|auto", "Colours for input and answer; bare: on.",
           [](Target& target, const Argument& argument) {
             target.settings.prompt.color =
                 argument.bare() ? Tristate::on : to_tristate(argument, argument.value(), true);
           })
        .words({"on", "off", "auto", "enabled", "disabled", "true", "false", "0", "1", "-1"})
        .initially("on a terminal"),
    option({"--simple-io"}, "", "Neither colours nor the note at the start, for programs that drive llama-cli.",
           toggle([](Settings& s) -> auto& { return s.prompt.simple_io; }))
        .initially("off"),
    option({"-ptc", "--print-token-count"}, "N", "Print the token count every N tokens.").no_effect("-v prints it"),
    option({"--prompt-cache"}, "FNAME", "File for the state of the prompt.").no_effect(kNotSaved),
    option({"--prompt-cache-all"}, "", "Save inputs and answers too.").no_effect(kNotSaved),
    option({"--prompt-cache-ro"}, "", "Do not update that file.").no_effect(kNotSaved),
    option({"--server-base"}, "URL", "Use a running server.")
        .refused("llama-cli as a client", "use curl or an OpenAI client"),
    option({"--infill"}, "", "Fill in the middle.").refused("infill", kLeaveOut),
};

const std::vector<Option> kTokenizeRows = {
    option({"--ids"}, "", "Print the ids as a list: [1, 2, 3].",
           toggle([](Settings& s) -> auto& { return s.tokenize.ids; })),
    option({"--stdin"}, "", "Read the text from standard input.",
           toggle([](Settings& s) -> auto& { return s.tokenize.from_stdin; })),
    option({"--no-bos"}, "", "No BOS token, even if the model wants one.",
           toggle([](Settings& s) -> auto& { return s.tokenize.no_bos; })),
    option({"--no-parse-special"}, "", "Read special tokens as plain text.",
           toggle([](Settings& s) -> auto& { return s.tokenize.no_parse_special; })),
    option({"--show-count"}, "", "Print the number of tokens.",
           toggle([](Settings& s) -> auto& { return s.tokenize.show_count; })),
};

}  // namespace

void add_prompt_options(std::vector<Option>& table) {
  for (Option row : kPromptRows) {
    row.group = kPrompt;
    // A row that names its own set keeps it.
    if (row.tools == kModelRunners) row.tools = kCli;
    table.push_back(std::move(row));
  }
  for (Option row : kTokenizeRows) {
    row.group = kTokenizeGroup;
    row.tools = kTokenize;
    table.push_back(std::move(row));
  }
}

}  // namespace common
