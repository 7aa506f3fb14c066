#pragma once

#include <string>

#include "llama/importance.h"

namespace imatrix {

/// A table of the matrix: for each weight the sum, least, greatest, mean and deviation of the columns' mean squares,
/// the share of columns above zero, their number, entropy (and its share of the possible), the share of columns more
/// than a deviation above the mean, and the similarity to the same weight of the layer before.
[[nodiscard]] std::string statistics_table(const llama::ImportanceMatrix& matrix);

}  // namespace imatrix
