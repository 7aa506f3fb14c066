// llama-tokenize: shows the tokens that a model makes of a text.
#include <cstdio>
#include <string>
#include <vector>

#include "common/args/option.h"
#include "common/setup/run_tool.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "llama/vocab.h"

namespace {

std::string read_stdin() {
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), stdin)) text.append(buffer.data(), n);
  if (std::ferror(stdin) != 0) throw ggml::Error(ggml::ErrorCode::io, "standard input could not be read");
  return text;
}

void print_ids(const std::vector<llama::Token>& tokens) {
  std::string line = "[";
  for (const llama::Token token : tokens) {
    if (line.size() > 1) line += ", ";
    line += std::to_string(token);
  }
  std::puts((line + "]").c_str());
}

// The pieces are bytes, and a character may be spread over several lines: they are written as they are.
void print_pieces(const llama::Vocab& vocab, const std::vector<llama::Token>& tokens) {
  for (const llama::Token token : tokens) {
    const std::string_view piece = vocab.piece(token, llama::SpecialText::show);
    std::printf("%6d -> '", token);
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fputs("'\n", stdout);
  }
}

int run(const common::Settings& settings) {
  const common::TokenizeSettings& wanted = settings.tokenize;
  const ggml::gguf::File file = ggml::gguf::File::open(settings.model.path);
  const llama::Vocab vocab = llama::Vocab::load(file.metadata(), settings.model.path);
  std::string text = settings.prompt.prompt;
  if (wanted.from_stdin) {
    text = read_stdin();
    if (settings.prompt.escape) text = common::unescape(text);
  }
  const std::vector<llama::Token> tokens = vocab.tokenize(
      text, {.add_special = vocab.add_bos() && !wanted.no_bos, .parse_special = !wanted.no_parse_special});
  if (wanted.ids) {
    print_ids(tokens);
  } else {
    print_pieces(vocab, tokens);
  }
  if (wanted.show_count) std::printf("Total number of tokens: %zu\n", tokens.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::tokenize, argc, argv, run);
}
