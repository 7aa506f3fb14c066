// llama-cli: one answer to a prompt, or a chat in the terminal.
#include <cstdio>
#include <memory>
#include <new>

#include "common/args/args.h"
#include "common/chat/reply_grammar.h"
#include "common/chat/reply_mask.h"
#include "common/grammar/grammar_cache.h"
#include "common/log/timings.h"
#include "common/setup/chat_setup.h"
#include "common/setup/grammar_setup.h"
#include "common/setup/planned_run.h"
#include "common/setup/run_tool.h"
#include "common/setup/setup.h"
#include "console.h"
#include "conversation.h"
#include "generator.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace {

using cli::Console;
using cli::Ending;
using common::Settings;
using common::Tristate;

constexpr int kExitInterrupted = 130;

class Session {
 public:
  Session(const Settings& settings, llama::Context& context, const common::chat::ChatTemplates& chat, Console& console)
      : settings_(settings),
        vocab_(context.model().vocab()),
        console_(console),
        generator_(context, common::sampling_params(settings.sampling, context.model()), &Console::interrupted),
        conversation_(chat, vocab_) {
    generator_.show_special(settings.prompt.special);
    if (settings.cache.context_shift) generator_.shift_context(settings.cache.n_keep);
    grammar_ = common::given_grammar(settings.sampling, grammars_);
    if (grammar_.compiled != nullptr) {
      generator_.follow([this] { return std::make_unique<common::grammar::GrammarMask>(grammar_.compiled); });
    }
    const common::ChatSettings& chat_settings = settings.chat;
    conversation_.split_reasoning(chat_settings.parse_replies &&
                                  chat_settings.reasoning_format != common::ReasoningFormat::none);
  }

  /// Prompt and answer; with -i then input and answer in turn, all of it one text.
  int complete() {
    const common::PromptSettings& prompt = settings_.prompt;
    const bool interactive = prompt.interactive || prompt.interactive_first;
    if (!prompt.system_prompt.empty())
      ggml::logf(ggml::LogLevel::warn, "-sys is not used: this is no chat (-cnv makes it one)");
    std::vector<llama::Token> tokens = vocab_.tokenize(prompt.prompt, {.add_special = true, .parse_special = true});
    if (tokens.empty() && !prompt.prompt.empty())
      throw ggml::Error(ggml::ErrorCode::invalid_argument, "the vocabulary of the model has no token for the prompt",
                        "look at its tokens: llama-gguf FILE --json");
    if (tokens.empty() && !interactive)
      throw ggml::Error(ggml::ErrorCode::invalid_argument, "the prompt is empty", "pass a text with -p or -f");
    generator_.check_fits(tokens);  // before anything is shown
    if (prompt.display_prompt) {
      console_.speak(Console::Speaker::prompt);
      console_.write(prompt.prompt);
    }
    Ending ending = Ending::limit;
    bool ask = prompt.interactive_first || (interactive && prompt.prompt.empty());
    while (!ask || read_more(tokens)) {
      start(tokens);
      ending = answer();
      if (!interactive) break;
      tokens = generator_.tokens();
      if (ending == Ending::end_of_generation) go_on_after_end(tokens);
      ask = true;
    }
    console_.write("\n");
    finish();
    return Console::interrupted() ? kExitInterrupted : 0;
  }

  /// A chat: the system prompt, the first message of -p if there is one, then what the user types.
  int chat() {
    const common::PromptSettings& prompt = settings_.prompt;
    if (!prompt.system_prompt.empty()) conversation_.add("system", prompt.system_prompt);
    if (!prompt.single_turn && !prompt.simple_io)
      std::fputs("Chat with the model. /clear starts anew, /exit or Ctrl-D ends, Ctrl-C stops an answer.\n\n", stderr);
    std::string message = prompt.prompt;
    bool given = !message.empty();
    while (given || read_message(message)) {
      turn(message, given && prompt.display_prompt);
      given = false;
      if (prompt.single_turn) break;
    }
    console_.speak(Console::Speaker::none);
    finish();
    return Console::interrupted() ? kExitInterrupted : 0;
  }

 private:
  /// Hands the tokens to the generator; --verbose-prompt shows them.
  void start(const std::vector<llama::Token>& tokens) {
    generator_.set_prompt(tokens);
    if (!settings_.prompt.verbose_prompt) return;
    std::fprintf(stderr, "number of tokens in prompt = %zu\n", tokens.size());
    for (const llama::Token token : tokens) {
      const std::string_view piece = vocab_.piece(token, llama::SpecialText::show);
      std::fprintf(stderr, "%6d -> '%.*s'\n", token, static_cast<int>(piece.size()), piece.data());
    }
  }

  /// The model ended the text where the user wants to go on: the end token goes, and a reverse prompt takes its place,
  /// as if the model had written it.
  void go_on_after_end(std::vector<llama::Token>& tokens) {
    tokens.pop_back();
    if (settings_.prompt.reverse_prompts.empty()) return;
    const std::string& reverse = settings_.prompt.reverse_prompts.front();
    console_.write(reverse);
    append(tokens, reverse);
  }

  void append(std::vector<llama::Token>& tokens, const std::string& text) const {
    const std::vector<llama::Token> more = vocab_.tokenize(text, {.add_special = false, .parse_special = true});
    tokens.insert(tokens.end(), more.begin(), more.end());
  }

  /// One input behind the text so far; an empty line lets the model go on. False at the end of input.
  bool read_more(std::vector<llama::Token>& tokens) {
    const common::PromptSettings& prompt = settings_.prompt;
    while (true) {
      console_.speak(Console::Speaker::user);
      console_.write(prompt.in_prefix);
      Console::clear_interrupt();
      const std::optional<std::string> line = console_.read_line(prompt.multiline_input);
      if (!line.has_value()) return false;
      if (!line->empty()) {
        if (prompt.in_prefix_bos && vocab_.special().bos != llama::kNoToken) tokens.push_back(vocab_.special().bos);
        append(tokens, prompt.in_prefix + *line + "\n" + prompt.in_suffix);
        console_.write(prompt.in_suffix);
      }
      if (!tokens.empty()) return true;
    }
  }

  bool read_message(std::string& message) {
    while (true) {
      console_.speak(Console::Speaker::user);
      console_.write("> ");
      Console::clear_interrupt();
      const std::optional<std::string> line = console_.read_line(settings_.prompt.multiline_input);
      if (!line.has_value() || *line == "/exit" || *line == "/quit") return false;
      if (*line == "/clear") {
        conversation_.clear();
        if (!settings_.prompt.system_prompt.empty()) conversation_.add("system", settings_.prompt.system_prompt);
        continue;
      }
      if (line->empty()) continue;
      message = settings_.prompt.in_prefix + *line + settings_.prompt.in_suffix;
      return true;
    }
  }

  /// `shown`: what was not typed is shown in front of its answer.
  void turn(const std::string& message, bool shown) {
    conversation_.add("user", message);
    try {
      std::vector<llama::Token> tokens = conversation_.tokens();
      while (settings_.cache.context_shift && !generator_.fits(tokens) && conversation_.drop_oldest())
        tokens = conversation_.tokens();
      start(tokens);
      if (shown) {
        console_.speak(Console::Speaker::user);
        console_.write("> " + message + "\n");
      }
      answer_turn();
    } catch (const ggml::Error& error) {
      // A message that does not fit, or that the template refuses, costs its own turn only.
      if (error.code() == ggml::ErrorCode::io) throw;
      if (settings_.prompt.single_turn) throw;
      conversation_.remove_last();
      ggml::logf(ggml::LogLevel::error, "%s%s%s", error.what(), error.hint().empty() ? "" : ": ", error.hint().c_str());
    }
    console_.write("\n\n");
  }

  /// One text, as it comes.
  Ending answer() {
    console_.speak(Console::Speaker::model);
    return generator_.generate(settings_.prompt.n_predict, settings_.prompt.reverse_prompts,
                               [this](std::string_view text) { console_.write(text); });
  }

  /// An answer in a chat: thoughts are shown apart from it, and kept apart in the conversation.
  void answer_turn() {
    const common::chat::ReplyReading& reading = conversation_.reading();
    generator_.show_tokens(common::chat::tokens_of_marks(*reading.format, vocab_));
    hold_answer(reading);
    common::chat::ReplyParser parser(reading);
    generator_.generate(settings_.prompt.n_predict, settings_.prompt.reverse_prompts,
                        [&](std::string_view text) { show(parser.push(text)); });
    show(parser.finish());
    if (thinking_) end_thought();
    conversation_.add_answer(parser.reply());
  }

  void show(const std::vector<common::chat::ReplyDelta>& deltas) {
    for (const common::chat::ReplyDelta& delta : deltas) {
      const bool thought = delta.kind == common::chat::ReplyDelta::Kind::reasoning;
      if (thought && !thinking_) {
        console_.speak(Console::Speaker::thought);
        console_.write("[Start thinking]\n");
      } else if (!thought && thinking_) {
        end_thought();
      }
      thinking_ = thought;
      console_.speak(thought ? Console::Speaker::thought : Console::Speaker::model);
      console_.write(delta.text);
    }
  }

  void end_thought() {
    console_.write("\n[End thinking]\n\n");
    console_.speak(Console::Speaker::model);
    thinking_ = false;
  }

  /// --reasoning-budget, and the grammar if there is one: it holds the answer, not the thoughts in front of it.
  void hold_answer(const common::chat::ReplyReading& reading) {
    const bool limited = settings_.chat.reasoning_budget >= 0 && !reading.format->think_ends.empty();
    const std::string opening = common::chat::opening_in_grammar(*reading.format, reading.opening);
    const std::optional<std::string> frame =
        grammar_.gbnf.empty()
            ? std::nullopt
            : common::chat::answer_frame(*reading.format, conversation_.thinking() || !opening.empty());
    if (!limited && !frame) return;
    auto rules = std::make_shared<common::chat::ReplyRules>();
    rules->reading = reading;
    rules->reading.options = {};
    rules->grammar = frame ? grammars_.get_framed(grammar_.gbnf, *frame) : grammar_.compiled;
    if (frame) rules->grammar_opening = opening;
    if (limited) {
      rules->reasoning_budget = settings_.chat.reasoning_budget;
      rules->reasoning_end =
          vocab_.tokenize(settings_.chat.reasoning_budget_message + reading.format->think_ends.front(),
                          {.add_special = false, .parse_special = true});
    }
    generator_.follow([rules, this] { return std::make_unique<common::chat::ReplyMask>(rules, vocab_); });
  }

  void finish() const {
    if (settings_.prompt.show_timings) common::print_timings(generator_.timings());
  }

  const Settings& settings_;
  const llama::Vocab& vocab_;
  Console& console_;
  cli::Generator generator_;
  cli::Conversation conversation_;
  common::grammar::GrammarCache grammars_{vocab_};
  common::GivenGrammar grammar_;
  bool thinking_ = false;  // what is shown is a thought
};

int list_architectures() {
  for (const std::string_view name : llama::known_architectures())
    std::printf("%.*s\n", static_cast<int>(name.size()), name.data());
  return 0;
}

int run(const Settings& settings) {
  if (settings.model.list_architectures) return list_architectures();
  const common::PlannedRun planned = common::plan_run(settings, common::sequences_of(common::Tool::cli, settings));
  common::announce(planned);
  const std::unique_ptr<llama::Model> model = common::load_model(settings, planned);
  const common::chat::ChatTemplates chat = common::make_chat_templates(settings.chat, *model);
  llama::Context context(*model, planned.machine->pointers(), planned.plan(), planned.context);
  if (settings.model.warmup) common::warm_up(context);

  const Tristate wish = settings.prompt.color;
  const bool plain = settings.prompt.simple_io;
  Console console(wish == Tristate::on || (!plain && wish == Tristate::automatic && Console::is_terminal()));
  Console::catch_interrupts();
  Session session(settings, context, chat, console);
  const bool has_template =
      model->metadata().contains("tokenizer.chat_template") || !settings.chat.chat_template.empty();
  const bool talk =
      settings.prompt.conversation == Tristate::automatic ? has_template : settings.prompt.conversation == Tristate::on;
  return talk ? session.chat() : session.complete();
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::cli, argc, argv, run);
}
