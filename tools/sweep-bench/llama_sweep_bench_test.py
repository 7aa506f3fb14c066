"""Drives llama-sweep-bench --compare and --chart, and scripts/sweep_plot.py, which draws the same. Standard library only.

usage: llama_sweep_bench_test.py LLAMA_SWEEP_BENCH
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

TOOL = os.path.abspath(sys.argv.pop(1))
PLOT = "scripts/sweep_plot.py"
MODEL = "tests/data/models/llama.gguf"
CARD = "--sim-device CUDA0:64MiB -ngl 99".split()
LINE = ("-m", MODEL, "-t", "1", "-c", "256", "-ub", "64", "-n", "2", "--poll", "0")
ROW = re.compile(r"^\|\s*(\d+) \|\s*(\d+) \|\s*(\d+) \|\s*([\d.]+) \|\s*([\d.]+) \|\s*([\d.]+) \|\s*([\d.]+) \|$", re.M)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def run_tool(self, *args, status=0, tool=TOOL):
        done = subprocess.run([tool, *args], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def fails(self, *args, status=1, tool=TOOL):
        text = self.run_tool(*args, status=status, tool=tool)
        errors = [line for line in text.splitlines() if line.startswith("error")]
        self.assertEqual(len(errors), 1, text)
        return errors[0]


class Compare(Case):
    def test_each_configuration_has_its_rows_and_ratios_stand_per_depth(self):
        text = self.run_tool(*LINE, "--compare", "-ub 64", "-ub 128 -t 2", "--output-file", self.path("table"))
        rows = [tuple(map(float, row)) for row in ROW.findall(text)]
        self.assertEqual([(int(pp), int(n_kv)) for pp, _, n_kv, *_ in rows],
                         [(64, 0), (64, 64), (64, 128), (64, 192), (128, 0), (128, 128)])
        self.assertIn("main: 2 configurations, 1 model load\n", text)
        copy = self.read("table")
        self.assertTrue(copy.startswith("configuration A: -ub 64\n\n|    PP |"), copy)
        self.assertIn("\n\nconfiguration B: -ub 128 -t 2\n\n|    PP |", copy)
        head, rule, *lines = copy[copy.index("comparison\n\n") + len("comparison\n\n"):].splitlines()
        self.assertEqual([cell.strip() for cell in head.strip("|").split("|")],
                         ["N_KV", "PP A t/s", "TG A t/s", "PP B t/s", "TG B t/s", "PP B/A", "TG B/A"])
        self.assertEqual(len(head), len(rule))
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        self.assertEqual([row[0] for row in cells], ["0", "64", "128", "192"])
        self.assertEqual(cells[1][3:], ["-", "-", "-", "-"])
        self.assertAlmostEqual(float(cells[2][5]), float(cells[2][3]) / float(cells[2][1]), delta=0.01)
        self.assertRegex(lines[-1], r"^B / A: geometric mean of the ratios over 2 depths: PP [\d.]+, TG [\d.]+$")

    def test_only_flags_that_move_weights_load_again(self):
        core = f"-C {1 << min(os.sched_getaffinity(0)):#x}"
        for flags, loads in ((("-t 2", "-ub 32 -ctk q8_0 -c 512 --poll 10"), 1), (("-ngl 99", "-ngl all"), 1), ((core, "-t 2"), 1),
                             (("-ngl 99", "-ngl 2"), 2), (("", "-ot attn=CPU"), 2), (("-nkvo", "-ngl 0"), 2),
                             (("", "--no-mmap"), 2)):
            with self.subTest(flags=flags):
                text = self.run_tool(*LINE, *CARD, "--compare", *flags)
                self.assertIn(f"main: 2 configurations, {loads} model load{'s' if loads > 1 else ''}\n", text)

    def test_json_rows_say_whose_they_are(self):
        self.run_tool(*LINE, "--output-format", "jsonl", "--output-file", self.path("rows"), "--compare", "-ub 128", "-t 2",
                      "--compare", "-ub 128 -t 2", "-ub 128 -n 1")
        rows = [json.loads(line) for line in self.read("rows").splitlines()]
        self.assertEqual([row["configuration"] for row in rows], list("AABBBBCCDD"))
        self.assertEqual({row["configuration"]: row["flags"] for row in rows}, dict(A="-ub 128", B="-t 2", C="-ub 128 -t 2", D="-ub 128 -n 1"))
        self.assertNotIn("ratio_pp", rows[0])
        self.assertAlmostEqual(rows[4]["ratio_pp"], rows[4]["speed_pp"] / rows[1]["speed_pp"], places=4)
        self.assertIsNone(rows[3]["ratio_tg"])  # at 64, where A has no row

    def test_configurations_that_are_wrong_are_known_before_anything_is_measured(self):
        for flags, message in ((("-t 1", "-ub '64"), "configuration B: -ub '64: the quote ' at position 5 is not closed"),
                               (("--nope", "-t 1"), "configuration A: --nope: invalid argument: --nope"),
                               (("-t 1", "-m other.gguf"), "the model (-m) holds for the whole comparison"),
                               (("-t 1", "-ub 64 --compare -t1 -t2"), "--compare holds for the whole comparison"),
                               (("-t 1", "-ub 2048 -b 2048"), "a row of the sweep is 2048 tokens (-ub) and the context has 256 (-c)"),
                               (("-t 1", "-n 300"), "a row of the sweep is 300 tokens (-n)"),
                               (("-t 1", "-ub 96"), "configuration B: -ub 96: the last row does not fit"),
                               (("-t 1", "-n 100"), "the last row does not fit"),
                               (("-t 1", "-ot x=CUDA9"), "x=CUDA9")):
            with self.subTest(flags=flags):
                text = self.run_tool(*LINE, "--compare", *flags, status=1)
                self.assertIn(message, text)
                self.assertEqual(ROW.findall(text), [])
        text = self.run_tool(*LINE, "--sim-device", "CUDA0:64MiB", "--compare", "-ngl 0", "-ngl 99 --sim-device CUDA1:1MiB -dev CUDA1", status=2)
        self.assertIn("configuration B", text)
        self.assertEqual(ROW.findall(text), [])

    def test_one_configuration_is_no_comparison(self):
        self.assertIn("expected value", self.fails(*LINE, "--compare", "-t 2"))
        self.assertIn("--dry-run", self.fails(*LINE, "--compare", "-t 1", "-t 2", "--dry-run"))

    def test_a_context_below_a_row_is_told_with_the_remedy(self):
        error = self.fails("-m", MODEL, "-t", "1", "-c", "256", "-ub", "512")
        self.assertIn("a row of the sweep is 512 tokens (-ub) and the context has 256 (-c)", error)
        self.assertIn("give -c 512 or more, or -ub 256 or less", error)

    def test_a_last_row_that_does_not_fit_ends_behind_the_others(self):
        text = self.run_tool("-m", MODEL, "-t", "1", "-c", "256", "-ub", "96", "-n", "2", status=1)
        self.assertEqual(len(ROW.findall(text)), 2)
        self.assertIn("the row at N_KV 192 needs 96 tokens of context, 64 are left of 256", text)


class Roofline(Case):
    def test_shares_of_the_limits_have_columns_and_a_summary_of_at_least_five_pairs(self):
        text = self.run_tool("-m", MODEL, "-t", "1", "-c", "128", "-ub", "64", "-n", "2", "--poll", "0", "--roofline")
        self.assertIn("S_TG t/s | PP / peak | TG / read |", text)
        rows = re.findall(r"^\|\s*64 \|\s*2 \|.* ([\d.]+) \|\s*([\d.]+) \|$", text, re.M)
        self.assertEqual(len(rows), 2)
        self.assertTrue(all(float(share) > 0 for row in rows for share in row), rows)
        for what in ("generation / measured read bandwidth", "prompt / measured int8 peak"):
            median, low, high, pairs = re.search(rf"^roofline: {what}: median ([\d.]+), ([\d.]+) to ([\d.]+) over (\d+) pairs$", text, re.M).groups()
            self.assertTrue(0 < float(low) <= float(median) <= float(high))
            self.assertGreaterEqual(int(pairs), 5)


class Chart(Case):
    def lines_of(self, text):
        root = xml.fromstring(text)
        return [node for node in root.iter() if node.tag.endswith("polyline")]

    def test_a_chart_has_a_line_for_each_speed_and_configuration(self):
        self.run_tool(*LINE, "--chart", self.path("one.svg"))
        one = self.read("one.svg")
        self.assertEqual(len(self.lines_of(one)), 2)
        self.assertIn("llama-sweep-bench llama.gguf", one)
        self.run_tool(*LINE, "--compare", "-t 1", "-t 2", "--chart", self.path("two.HTML"))
        page = self.read("two.HTML")
        self.assertEqual(len(self.lines_of(page[page.index("<svg"):page.index("</svg>") + 6])), 4)
        self.assertIn("<th>PP t/s A: -t 1</th>", page)
        self.assertEqual(sorted(os.listdir(self.folder)), ["one.svg", "two.HTML"])

    def test_the_script_draws_the_same_from_the_rows(self):
        rows = self.path("rows.jsonl")
        for kind in ("svg", "html"):
            self.run_tool(*LINE, "--output-format", "jsonl", "--output-file", rows, "--compare", "", "-ub 128 -p \"<&>\"",
                          "--chart", self.path(f"a.{kind}"))
            self.run_tool("-o", self.path(f"b.{kind}"), "--title", "llama-sweep-bench llama.gguf", rows, tool=PLOT)
            self.assertEqual(self.read(f"a.{kind}"), self.read(f"b.{kind}"))
            self.run_tool(*LINE, "--output-format", "jsonl", "--output-file", rows, "--chart", self.path(f"a.{kind}"))
            self.run_tool("-o", self.path(f"b.{kind}"), "--title", "llama-sweep-bench llama.gguf", rows, tool=PLOT)
            self.assertEqual(self.read(f"a.{kind}"), self.read(f"b.{kind}"))

    def test_outputs_that_cannot_be_written_are_errors_at_the_start(self):
        model = self.path("model.gguf")
        shutil.copy(MODEL, model)
        line = ("-m", model, *LINE[2:])
        for args, message in ((("--chart", self.path("no/such/x.svg")), "cannot write"),
                              (("--chart", self.path("x.png")), "ends in .svg or .html"),
                              (("--output-file", self.path("no/such/x")), "cannot write"),
                              (("--output-file", model), "would be written over"),
                              (("--chart", self.path("x.svg"), "--output-file", self.path("x.svg")), "the same file")):
            with self.subTest(args=args):
                text = self.run_tool(*line, *args, status=1)
                self.assertIn(message, text)
                self.assertEqual(ROW.findall(text), [])
                self.assertEqual(os.listdir(self.folder), ["model.gguf"])
        self.assertEqual(os.path.getsize(model), os.path.getsize(MODEL))

    def test_a_run_that_fails_leaves_no_chart(self):
        self.run_tool("-m", MODEL, "-t", "1", "-c", "256", "-ub", "96", "-n", "2", "--chart", self.path("x.svg"), status=1)
        self.assertEqual(os.listdir(self.folder), [])


class Plot(Case):
    SWEEP = '{"n_kv_max": 1024, "pp": 512, "tg": 128, "n_kv": %d, "t_pp": 1.0, "speed_pp": %f, "t_tg": 2.0, "speed_tg": %f }\n'

    def plot(self, *args, **more):
        return self.run_tool("-o", self.path("out.svg"), *args, tool=PLOT, **more)

    def test_rows_of_the_peers_tools(self):
        sweep = self.write("sweep.jsonl", "load: a log line\n" + self.SWEEP % (0, 500, 50) + "\n" + self.SWEEP % (512, 400, 40))
        self.assertIn("note: " + sweep + ": 1 line is not drawn", self.plot(sweep))
        self.assertEqual(self.read("out.svg").count("<polyline"), 2)
        batched = self.write("batched.jsonl", "".join(
            json.dumps({"pp": 128, "tg": 64, "pl": pl, "n_kv": pl * 192, "speed_pp": 100.0, "speed_tg": 10.0 * pl}) + "\n" for pl in (1, 2, 4)))
        self.plot(batched)
        self.assertIn(">4 sequences</text>", self.read("out.svg"))
        bench = self.write("bench.jsonl", "".join(json.dumps({"n_prompt": p, "n_gen": g, "n_depth": d, "avg_ts": 7.5}) + "\n"
                                                  for d in (0, 4096) for p, g in ((512, 0), (0, 128), (512, 128))))
        self.plot(bench)
        self.assertIn("N_KV 4096: 7.50 tokens/s", self.read("out.svg"))
        self.plot(f"before={sweep}", f"after={sweep}", bench)
        text = self.read("out.svg")
        for label in ("before", "after", "bench"):
            self.assertIn(f">{label}</text>", text)

    def test_a_broken_line_is_named(self):
        good = self.SWEEP % (0, 500, 50)
        for line, message in ((good[:60], ":2: no JSON: "), ('{"n_kv": 5}', ":2: neither speed_pp"),
                              ('{"n_kv": "x", "speed_pp": 1, "speed_tg": 1}', ':2: "n_kv" is "x"'),
                              ('{"n_kv": 1.5, "speed_pp": 1, "speed_tg": 1}', ':2: "n_kv" is 1.5'),
                              ('{"n_kv": 1, "speed_pp": NaN, "speed_tg": 1}', ':2: "speed_pp" is NaN'),
                              ('{"n_kv": 1, "speed_pp": 1}', ':2: "speed_tg" is null')):
            with self.subTest(line=line):
                path = self.write("rows.jsonl", good + line + "\n")
                self.assertIn(f"error: {path}{message}", self.fails("-o", self.path("out.svg"), path, tool=PLOT))
                self.assertFalse(os.path.exists(self.path("out.svg")))

    def test_files_that_are_missing_empty_or_not_writable(self):
        rows = self.write("rows.jsonl", self.SWEEP % (0, 500, 50))
        self.assertIn("No such file", self.fails(self.path("none"), "-o", self.path("x.svg"), tool=PLOT))
        self.assertIn("no rows with speeds", self.fails(self.write("empty", "\n"), "-o", self.path("x.svg"), tool=PLOT))
        self.assertIn("cannot write", self.fails(rows, "-o", self.path("no/x.svg"), tool=PLOT))
        self.assertIn("ends in .svg or .html", self.fails(rows, "-o", self.path("x.png"), tool=PLOT))
        same = self.write("rows.svg", self.SWEEP % (0, 500, 50))
        self.assertIn("written over", self.fails(same, "-o", same, tool=PLOT))


if __name__ == "__main__":
    unittest.main()
