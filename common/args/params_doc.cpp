// Prints docs/parameters.md.
#include <cstdio>
#include <cstdlib>

#include "common/args/args.h"

int main() {
  const bool written = std::fputs(common::parameters_document().c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!written) std::perror("error: standard output");
  return written ? EXIT_SUCCESS : EXIT_FAILURE;
}
