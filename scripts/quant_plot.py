#!/usr/bin/env python3
"""Draws what types of weights cost: KL divergence over bits per weight, from what measure_quants.py --json printed. Standard library only.

  quant_plot.py [-o OUT.svg] LABEL=FILE...      a panel for each file
"""
import argparse
import json
import math
import sys

WIDTH, LEFT, RIGHT, PANEL, TOP, GAP = 860.0, 70.0, 20.0, 330.0, 46.0, 62.0

STYLE = ("<style>text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.l{font-size:10px}.b{fill:#fff}.g{stroke:#d8dee4}"
         ".m{fill:#0072b2}.f{fill:none;stroke:#d55e00;stroke-dasharray:5 4}"
         "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#0d1117}.g{stroke:#30363d}.m{fill:#56b4e9}.f{stroke:#ff9d5c}}</style>\n")


def points_of(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.startswith("{")]
    rows = [row for row in rows if row["type"] != "source" and row["kld"] > 0]
    if not rows:
        sys.exit(f"quant_plot.py: {path} has no rows of measure_quants.py --json")
    return sorted((row["bpw"], row["kld"], row["type"].upper()) for row in rows)


def panel(label, points, top):
    lo, hi = math.floor(points[0][0]), math.ceil(points[-1][0])
    bottom_power = math.floor(math.log10(min(p[1] for p in points)))
    top_power = math.ceil(math.log10(max(p[1] for p in points)))
    top_power = max(top_power, bottom_power + 1)
    plot = WIDTH - LEFT - RIGHT
    x_of = lambda bits: LEFT + (bits - lo) / (hi - lo) * plot
    y_of = lambda kld: top + PANEL * (top_power - math.log10(kld)) / (top_power - bottom_power)
    out = [f'<text class="t" x="{LEFT}" y="{top - 14:.1f}">{label}</text>']
    for bits in range(lo, hi + 1):
        out.append(f'<line class="g" x1="{x_of(bits):.1f}" x2="{x_of(bits):.1f}" y1="{top:.1f}" y2="{top + PANEL:.1f}"/>'
                   f'<text x="{x_of(bits):.1f}" y="{top + PANEL + 16:.1f}" text-anchor="middle">{bits}</text>')
    for power in range(bottom_power, top_power + 1):
        y = y_of(10.0**power)
        out.append(f'<line class="g" x1="{LEFT}" x2="{LEFT + plot}" y1="{y:.1f}" y2="{y:.1f}"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    # The best of those that are no larger.
    front, least = [], math.inf
    for bits, kld, _ in points:
        if kld < least:
            least = kld
            front.append(f"{x_of(bits):.1f},{y_of(kld):.1f}")
    out.append(f'<polyline class="f" points="{" ".join(front)}"/>')
    taken = []
    for bits, kld, name in points:
        x, y = x_of(bits), y_of(kld)
        out.append(f'<circle class="m" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        width = 6.2 * len(name)
        for dx, dy in ((6, 4), (6, -6), (6, 14), (-6 - width, 4), (-6 - width, -6), (-6 - width, 14), (6, 24), (6, -16)):
            box = (x + dx, y + dy - 9, x + dx + width, y + dy + 1)
            if box[2] < WIDTH and all(box[2] < o[0] or box[0] > o[2] or box[3] < o[1] or box[1] > o[3] for o in taken):
                break
        taken.append(box)
        out.append(f'<text class="l" x="{box[0]:.1f}" y="{box[1] + 9:.1f}">{name}</text>')
    out.append(f'<text x="{LEFT + plot / 2:.1f}" y="{top + PANEL + 34:.1f}" text-anchor="middle">bits per weight</text>'
               f'<text transform="translate(16 {top + PANEL / 2:.1f}) rotate(-90)" text-anchor="middle">mean KL divergence</text>')
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", default="quants.svg")
    parser.add_argument("files", nargs="+", metavar="LABEL=FILE")
    args = parser.parse_args()
    panels = []
    for i, item in enumerate(args.files):
        label, _, path = item.rpartition("=")
        panels.append(panel(label or path, points_of(path), TOP + i * (PANEL + GAP + 24)))
    height = TOP + len(panels) * (PANEL + GAP + 24)
    with open(args.o, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" width="{WIDTH:g}" height="{height:g}">\n{STYLE}'
                   f'<rect class="b" width="{WIDTH:g}" height="{height:g}"/>\n' + "\n".join(panels) + "\n</svg>\n")


main()
