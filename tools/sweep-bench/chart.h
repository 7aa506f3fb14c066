#pragma once

#include <string>
#include <vector>

namespace sweep {

/// Speeds in tokens/s at one depth of the cache.
struct Point {
  int n_kv = 0;
  double pp = 0, tg = 0;
};

struct Series {
  std::string label;
  std::vector<Point> points;  // by depth, at least one
};

/// Both speeds over N_KV. scripts/sweep_plot.py draws the same from JSONL; a test holds the two together.
struct Chart {
  std::string title;
  std::vector<Series> series;  // at least one
};

/// A file that needs nothing else, readable on light and dark grounds.
[[nodiscard]] std::string svg_text(const Chart& chart);
/// A page with the drawing and its numbers.
[[nodiscard]] std::string html_text(const Chart& chart);

}  // namespace sweep
