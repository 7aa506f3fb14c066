#pragma once

#include <cstdio>
#include <memory>

#include "result.h"

namespace bench {

/// Writes results to one stream in one format.
class Printer {
 public:
  virtual ~Printer() = default;
  virtual void begin() {}
  virtual void print(const Result& result) = 0;
  virtual void end() {}
};

/// Null for Format::none. `grid` and `run` decide which columns the markdown table has.
[[nodiscard]] std::unique_ptr<Printer> make_printer(Format format, std::FILE* stream, const Grid& grid,
                                                    const Grid& defaults, const RunFacts& run);

}  // namespace bench
