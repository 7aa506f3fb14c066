#!/usr/bin/env python3
"""Draws prompt and generation speed over the depth of the cache, as llama-sweep-bench --chart does, from JSONL that is
there already. Standard library only.

  sweep_plot.py [-o OUT.svg|OUT.html] [--title TEXT] [LABEL=]FILE...

Reads rows of llama-sweep-bench (ours and ik_llama.cpp's; those of --compare become a line for each configuration), of
llama-batched-bench (a line for each number of sequences) and of llama-bench -o jsonl (over n_depth; tests that mix
prompt and generation are left out). Lines that do not begin with '{' are log lines and are skipped.
"""

import argparse
import json
import math
import os
import pathlib
import sys

WIDTH, LEFT, PLOT_WIDTH, PLOT_HEIGHT = 760.0, 76.0, 664.0, 200.0
TITLE, LEGEND, LEGEND_ROW, PANEL_TITLE, AXIS_BELOW, GAP = 26.0, 48.0, 18.0, 28.0, 52.0, 24.0
COLOURS = 6  # then lines are dashed

STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.p{font-weight:600}"
    ".b{fill:#fff}.g{stroke:#d8dee4}.a{stroke:#57606a}.s{fill:none;stroke-width:2}.d{stroke-dasharray:7 4}"
    ".c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#b3478f}.c4{stroke:#8c6d00}.c5{stroke:#57606a}"
    ".m{fill:#fff;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b,.m{fill:#0d1117}.g{stroke:#30363d}.a{stroke:#8b949e}"
    ".c0{stroke:#56b4e9}.c1{stroke:#ff9d5c}.c2{stroke:#2fd6a4}.c3{stroke:#e8a6cc}.c4{stroke:#e0c341}"
    ".c5{stroke:#c0c8d0}}</style>\n")


class Mistake(Exception):
    """Input that cannot be drawn; its text is for the user."""


def escaped(text):
    for plain, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(plain, name)
    return text


def speed_step(most):
    raw = most / 5.0
    power = math.pow(10.0, math.floor(math.log10(raw)))
    for factor in (1.0, 2.0, 5.0):
        if raw <= factor * power:
            return factor * power
    return 10.0 * power


def depth_step(most):
    step = 1
    while most // step > 8:
        step *= 2
    return step


def panel(series, which, top, title):
    """`series`: {label: {n_kv: [pp, tg]}}; `which`: 0 PP, 1 TG."""
    deepest = max([1] + [n_kv for points in series.values() for n_kv in points])
    most = max([0.0] + [point[which] for points in series.values() for point in points.values() if point[which] is not None])
    if most <= 0:
        most = 1.0
    step = speed_step(most)
    most = step * math.ceil(most / step)
    right, bottom = LEFT + PLOT_WIDTH, top + PLOT_HEIGHT

    def x(n_kv):
        return LEFT + PLOT_WIDTH * n_kv / deepest

    def y(speed):
        return top + PLOT_HEIGHT - PLOT_HEIGHT * speed / most

    def rule(is_axis, x1, y1, x2, y2):
        return f'<line class="{"a" if is_axis else "g"}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>\n'

    out = f'<text class="p" x="{LEFT:.1f}" y="{top - 10:.1f}">{title}</text>\n'
    i = 0
    while i * step <= most + step / 2:
        at = y(i * step)
        out += rule(i == 0, LEFT, at, right, at)
        out += f'<text x="{LEFT - 8:.1f}" y="{at + 4:.1f}" text-anchor="end">{"%g" % (i * step)}</text>\n'
        i += 1
    for n_kv in range(0, deepest + 1, depth_step(deepest)):
        out += rule(n_kv == 0, x(n_kv), top, x(n_kv), bottom)
        out += f'<text x="{x(n_kv):.1f}" y="{bottom + 17:.1f}" text-anchor="middle">{n_kv}</text>\n'
    out += f'<text x="{LEFT + PLOT_WIDTH / 2:.1f}" y="{bottom + 36:.1f}" text-anchor="middle">N_KV, tokens in the cache</text>\n'
    out += f'<text transform="translate(18 {top + PLOT_HEIGHT / 2:.1f})rotate(-90)" text-anchor="middle">tokens/s</text>\n'
    for index, (label, points) in enumerate(series.items()):
        shown = [(n_kv, point[which]) for n_kv, point in sorted(points.items()) if point[which] is not None]
        line = " ".join(f"{x(n_kv):.1f},{y(speed):.1f}" for n_kv, speed in shown)
        out += f'<polyline class="s c{index % COLOURS}{" d" if index >= COLOURS else ""}" points="{line}"/>\n'
        for n_kv, speed in shown:
            out += f'<circle class="m c{index % COLOURS}" cx="{x(n_kv):.1f}" cy="{y(speed):.1f}" r="3"><title>'
            out += f'{escaped(label) + ", " if label else ""}N_KV {n_kv}: {speed:.2f} tokens/s</title></circle>\n'
    return out


def svg_text(title, series):
    rows = 0 if len(series) < 2 else len(series)
    first = LEGEND + LEGEND_ROW * rows + PANEL_TITLE
    second = first + PLOT_HEIGHT + AXIS_BELOW + GAP
    height = second + PLOT_HEIGHT + AXIS_BELOW
    out = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" '
           f'height="{height:.0f}" role="img">\n<title>{escaped(title)}</title>\n{STYLE}'
           f'<rect class="b" width="{WIDTH:.0f}" height="{height:.0f}"/>\n'
           f'<text class="t" x="{LEFT:.1f}" y="{TITLE:.1f}">{escaped(title)}</text>\n')
    for i, label in enumerate(series if rows else ()):
        at = LEGEND + LEGEND_ROW * i
        out += (f'<line class="s c{i % COLOURS}{" d" if i >= COLOURS else ""}" x1="{LEFT:.1f}" y1="{at - 4:.1f}" '
                f'x2="{LEFT + 28:.1f}" y2="{at - 4:.1f}"/>\n<text x="{LEFT + 36:.1f}" y="{at:.1f}">{escaped(label)}</text>\n')
    return out + panel(series, 0, first, "PP: prompt processing") + panel(series, 1, second, "TG: token generation") + "</svg>\n"


def html_text(title, series):
    def cell(value):
        return "<td></td>" if value is None else f"<td>{value:.2f}</td>"

    out = ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>' + escaped(title) +
           "</title>\n<style>:root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:24px}"
           "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin-top:16px}"
           "th,td{padding:2px 12px;text-align:right;border-bottom:1px solid #8b949e66}</style></head><body>\n" +
           svg_text(title, series) + "<table><tr><th>N_KV</th>")
    for label in series:
        name = " " + escaped(label) if label else ""
        out += f"<th>PP t/s{name}</th><th>TG t/s{name}</th>"
    out += "</tr>\n"
    for n_kv in sorted({n_kv for points in series.values() for n_kv in points}):
        cells = "".join(cell(value) for points in series.values() for value in points.get(n_kv, (None, None)))
        out += f"<tr><td>{n_kv}</td>{cells}</tr>\n"
    return out + "</table></body></html>\n"


def number(row, key):
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise Mistake(f'"{key}" is {json.dumps(value)}, a number of at least 0 was expected')
    return value


def depth(row, key):
    value = number(row, key)
    if value != int(value):
        raise Mistake(f'"{key}" is {value}, a whole number was expected')
    return int(value)


def point_of(row):
    """(what distinguishes lines of one file, depth, PP speed, TG speed), or None for a row that is not drawn."""
    if "speed_pp" in row or "speed_tg" in row:
        kind = f'{row["pl"]} sequences' if "pl" in row else ""
        if "configuration" in row:
            kind = f'{row["configuration"]}: {row.get("flags") or "(no flags)"}'
        return kind, depth(row, "n_kv"), float(number(row, "speed_pp")), float(number(row, "speed_tg"))
    if "avg_ts" in row:
        n_prompt, n_gen, speed = number(row, "n_prompt"), number(row, "n_gen"), float(number(row, "avg_ts"))
        if (n_prompt > 0) == (n_gen > 0):
            return None
        at = depth(row, "n_depth") if "n_depth" in row else 0
        return "", at, speed if n_prompt > 0 else None, speed if n_gen > 0 else None
    raise Mistake("neither speed_pp and speed_tg nor avg_ts is in this row")


def read(path, series, label, alone):
    """Adds the lines of one file to `series`."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from error
    skipped = found = 0
    for place, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("{"):
            skipped += bool(line.strip())
            continue
        try:
            row = json.loads(line)
            point = point_of(row)
        except json.JSONDecodeError as error:
            raise Mistake(f"{path}:{place}: no JSON: {error.msg} at column {error.colno}") from error
        except (Mistake, TypeError) as error:
            raise Mistake(f"{path}:{place}: {error}") from error
        if point is None:
            skipped += 1
            continue
        found += 1
        kind, n_kv, *speeds = point
        name = kind if alone else f"{label} {kind}".rstrip()
        known = series.setdefault(name, {}).setdefault(n_kv, [None, None])
        for i, speed in enumerate(speeds):  # llama-bench has a row for each of the two; the last of equals counts
            known[i] = speed if speed is not None else known[i]
    if found == 0:
        raise Mistake(f"{path}: no rows with speeds")
    if skipped:
        print(f"note: {path}: {skipped} line{'s are' if skipped > 1 else ' is'} not drawn", file=sys.stderr)


def draw(arguments):
    if not arguments.output.lower().endswith((".svg", ".html")):
        raise Mistake(f"-o {arguments.output}: a name that ends in .svg or .html was expected")
    series = {}
    for word in arguments.files:
        label, equals, path = word.partition("=")
        if not equals or os.path.exists(word):
            label, path = pathlib.Path(word).stem, word
        if os.path.exists(arguments.output) and os.path.exists(path) and os.path.samefile(arguments.output, path):
            raise Mistake(f"{path}: would be written over")
        read(path, series, label, alone=len(arguments.files) == 1 and not (equals and path != word))
    text = (html_text if arguments.output.lower().endswith(".html") else svg_text)(arguments.title, series)
    try:
        pathlib.Path(arguments.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Mistake(f"cannot write {arguments.output}: {error.strerror}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="sweep.svg", help="the drawing (sweep.svg)")
    parser.add_argument("--title", default="Speed over depth")
    parser.add_argument("files", nargs="+", metavar="[LABEL=]FILE")
    try:
        draw(parser.parse_args())
    except Mistake as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
