#include "chart.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/markup.h"
#include "ggml/log.h"

namespace sweep {
namespace {

using ggml::strf;

constexpr double kWidth = 760, kLeft = 76, kPlotWidth = 664, kPlotHeight = 200;
constexpr double kTitle = 26, kLegend = 48, kLegendRow = 18, kPanelTitle = 28, kAxisBelow = 52, kGap = 24;
constexpr int kColours = 6;  // then lines are dashed

constexpr const char* kStyle =
    "<style>text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.p{font-weight:600}"
    ".b{fill:#fff}.g{stroke:#d8dee4}.a{stroke:#57606a}.s{fill:none;stroke-width:2}.d{stroke-dasharray:7 4}"
    ".c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#b3478f}.c4{stroke:#8c6d00}.c5{stroke:#57606a}"
    ".m{fill:#fff;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b,.m{fill:#0d1117}.g{stroke:#30363d}.a{stroke:#8b949e}"
    ".c0{stroke:#56b4e9}.c1{stroke:#ff9d5c}.c2{stroke:#2fd6a4}.c3{stroke:#e8a6cc}.c4{stroke:#e0c341}"
    ".c5{stroke:#c0c8d0}}</style>\n";

/// The least of 1, 2, 5, 10, 20, ... that divides [0, most] into at most five parts.
double speed_step(double most) {
  constexpr double kParts = 5;
  const double raw = most / kParts;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10.0 * power;
}

/// Depths are multiples of powers of two, so the ticks are.
int depth_step(int most) {
  constexpr int kParts = 8;
  int step = 1;
  while (most / step > kParts) step *= 2;
  return step;
}

/// One of the two speeds of all series.
class Panel {
 public:
  Panel(const Chart& chart, double Point::*speed, double top) : chart_(chart), speed_(speed), top_(top) {
    for (const Series& series : chart.series) {
      for (const Point& point : series.points) {
        deepest_ = std::max(deepest_, point.n_kv);
        most_ = std::max(most_, point.*speed);
      }
    }
    if (most_ <= 0) most_ = 1;
    step_ = speed_step(most_);
    most_ = step_ * std::ceil(most_ / step_);
  }

  [[nodiscard]] std::string text(const char* title) const {
    std::string out = strf("<text class=\"p\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", kLeft, top_ - 10, title);
    out += axes();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) out += line(i);
    return out;
  }

 private:
  [[nodiscard]] double x(int n_kv) const { return kLeft + kPlotWidth * n_kv / deepest_; }
  [[nodiscard]] double y(double speed) const { return top_ + kPlotHeight - kPlotHeight * speed / most_; }

  [[nodiscard]] std::string axes() const {
    std::string out;
    const double right = kLeft + kPlotWidth, bottom = top_ + kPlotHeight;
    for (int i = 0; i * step_ <= most_ + step_ / 2; ++i) {
      const double at = y(i * step_);
      out += strf("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", i == 0 ? "a" : "g", kLeft,
                  at, right, at);
      out += strf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", kLeft - 8, at + 4, i * step_);
    }
    for (int n_kv = 0; n_kv <= deepest_; n_kv += depth_step(deepest_)) {
      out += strf("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", n_kv == 0 ? "a" : "g",
                  x(n_kv), top_, x(n_kv), bottom);
      out += strf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", x(n_kv), bottom + 17, n_kv);
    }
    out += strf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">N_KV, tokens in the cache</text>\n",
                kLeft + kPlotWidth / 2, bottom + 36);
    out += strf("<text transform=\"translate(18 %.1f)rotate(-90)\" text-anchor=\"middle\">tokens/s</text>\n",
                top_ + kPlotHeight / 2);
    return out;
  }

  [[nodiscard]] std::string line(std::size_t index) const {
    const Series& series = chart_.series[index];
    const auto colour = static_cast<int>(index % kColours);
    std::string points, marks;
    for (const Point& point : series.points) {
      const double px = x(point.n_kv), py = y(point.*speed_);
      points += strf("%s%.1f,%.1f", points.empty() ? "" : " ", px, py);
      marks += strf("<circle class=\"m c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", colour, px, py);
      if (!series.label.empty()) marks += common::escape_markup(series.label) + ", ";
      marks += strf("N_KV %d: %.2f tokens/s</title></circle>\n", point.n_kv, point.*speed_);
    }
    return strf("<polyline class=\"s c%d%s\" points=\"%s\"/>\n", colour, index >= kColours ? " d" : "",
                points.c_str()) +
           marks;
  }

  const Chart& chart_;
  double Point::*speed_;
  double top_;
  int deepest_ = 1;
  double most_ = 0, step_ = 1;
};

std::string legend(const Chart& chart) {
  std::string out;
  if (chart.series.size() < 2) return out;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const double y = kLegend + kLegendRow * static_cast<double>(i);
    out += strf("<line class=\"s c%d%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                static_cast<int>(i % kColours), i >= kColours ? " d" : "", kLeft, y - 4, kLeft + 28, y - 4);
    out += strf("<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", kLeft + 36, y,
                common::escape_markup(chart.series[i].label).c_str());
  }
  return out;
}

}  // namespace

std::string svg_text(const Chart& chart) {
  const double legend_rows = chart.series.size() < 2 ? 0 : static_cast<double>(chart.series.size());
  const double first = kLegend + kLegendRow * legend_rows + kPanelTitle;
  const double second = first + kPlotHeight + kAxisBelow + kGap;
  const double height = second + kPlotHeight + kAxisBelow;
  std::string out = strf(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
      "role=\"img\">\n",
      kWidth, height, kWidth, height);
  out += "<title>" + common::escape_markup(chart.title) + "</title>\n" + kStyle;
  out += strf("<rect class=\"b\" width=\"%.0f\" height=\"%.0f\"/>\n", kWidth, height);
  out += strf("<text class=\"t\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", kLeft, kTitle,
              common::escape_markup(chart.title).c_str());
  out += legend(chart);
  out += Panel(chart, &Point::pp, first).text("PP: prompt processing");
  out += Panel(chart, &Point::tg, second).text("TG: token generation");
  return out + "</svg>\n";
}

std::string html_text(const Chart& chart) {
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
                    common::escape_markup(chart.title) +
                    "</title>\n<style>:root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:24px}"
                    "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin-top:16px}"
                    "th,td{padding:2px 12px;text-align:right;border-bottom:1px solid #8b949e66}</style></head><body>\n";
  out += svg_text(chart);
  out += "<table><tr><th>N_KV</th>";
  std::set<int> depths;
  for (const Series& series : chart.series) {
    const std::string label = series.label.empty() ? "" : " " + common::escape_markup(series.label);
    out += strf("<th>PP t/s%s</th><th>TG t/s%s</th>", label.c_str(), label.c_str());
    for (const Point& point : series.points) depths.insert(point.n_kv);
  }
  out += "</tr>\n";
  for (const int n_kv : depths) {
    out += strf("<tr><td>%d</td>", n_kv);
    for (const Series& series : chart.series) {
      const auto found = std::find_if(series.points.begin(), series.points.end(),
                                      [&](const Point& point) { return point.n_kv == n_kv; });
      out += found == series.points.end() ? "<td></td><td></td>"
                                          : strf("<td>%.2f</td><td>%.2f</td>", found->pp, found->tg);
    }
    out += "</tr>\n";
  }
  return out + "</table></body></html>\n";
}

}  // namespace sweep
