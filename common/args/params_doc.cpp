// Prints docs/parameters.md.
#include <cstdio>
#include <cstdlib>

#include "common/args/args.h"

int main() {
  std::fputs(common::parameters_document().c_str(), stdout);
  return std::fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
