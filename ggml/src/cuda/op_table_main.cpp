// Prints docs/cuda-ops.md.
#include <cstdio>
#include <cstdlib>

#include "cuda/op_table.h"

int main() {
  std::fputs(ggml::cuda::op_table_document().c_str(), stdout);
  return std::fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
