#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "llama/importance.h"

namespace imatrix {

/// Which projections are summed.
struct CollectorOptions {
  bool output_too = false;  // the head; where the embedding doubles as head it counts for token_embd.weight
};

/// Sums the squares of what goes into each projection. Called by the context's device thread; read it between steps.
class Collector final : public ggml::Observer {
 public:
  explicit Collector(CollectorOptions options) : options_(options) {}

  void on_tensor(const ggml::Tensor&, const void*, std::int64_t) override {}
  /// Throws Error(invalid_file) for inputs that are not finite, which only broken weights cause.
  void on_slot(const ggml::Weight& weight, std::span<const float> rows, std::span<const std::int32_t> experts) override;

  /// Adds what was collected to `matrix` and begins anew.
  void move_to(llama::ImportanceMatrix& matrix);

 private:
  struct Sums {
    std::int64_t columns = 0;
    std::vector<double> squares;  // [columns, matrices]
    std::vector<double> counts;   // [matrices]
  };
  [[nodiscard]] bool wants(const std::string& name) const;

  const CollectorOptions options_;
  std::map<std::string, Sums> sums_;
};

}  // namespace imatrix
