// Prints docs/parameters.md.
#include <cstdio>

#include "common/args/args.h"

int main() {
  std::fputs(common::parameters_document().c_str(), stdout);
  return 0;
}
