"""Columns and fields of llama-bench on the CPU and on simulated cards. Standard library only.

usage: llama_bench_test.py LLAMA_BENCH
"""

import csv
import io
import json
import os
import subprocess
import sys
import unittest

TOOL = os.path.abspath(sys.argv.pop(1))
LINE = ("-m", "tests/data/models/llama.gguf", "-p", "8", "-n", "0", "-r", "1", "-t", "1", "--poll", "0")
CARD = ("--sim-device", "CUDA0:64MiB")


def run(*args):
    done = subprocess.run([TOOL, *LINE, *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(*args):
    head, rule, *rows = [line for line in run(*args).splitlines() if line.startswith("|")]
    assert len(head) == len(rule), (head, rule)
    return [cell.strip() for cell in head.strip("|").split("|")], [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def lines(*args):
    """What a run says on standard error."""
    done = subprocess.run([TOOL, *LINE, *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("llama-bench: ") for line in done.stderr.splitlines()]


def one(*args):
    return json.loads(run("-o", "json", *args))[0]


class Prompt(unittest.TestCase):
    def test_the_tokens_of_a_text_are_the_prompt(self):
        line = ("-m", "tests/data/models/llama.gguf", "-n", "2", "-t", "1", "--poll", "0", "--iterations", "2", "-o", "json")
        done = subprocess.run([TOOL, *line, "--prompt", "the model and the"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        prompt, generation = json.loads(done.stdout)
        self.assertGreater(prompt["n_prompt"], 3)
        self.assertLess(prompt["n_prompt"], 18)
        self.assertEqual((prompt["n_gen"], generation["n_prompt"], generation["n_gen"]), (0, 0, 2))
        self.assertEqual(len(prompt["samples_ns"]), 2)
        done = subprocess.run([TOOL, *line, "--prompt", "a", "-p", "5"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--prompt gives the prompt", done.stderr)


class Columns(unittest.TestCase):
    ALWAYS = ["model", "size", "params", "backend"]

    def columns(self, *args):
        head, rows = table(*args)
        self.assertEqual(head[:4], self.ALWAYS)
        self.assertEqual(head[-2:], ["test", "t/s"])
        return dict(zip(head[4:-2], rows[0][4:-2])), rows[0][3]

    def test_the_cpu_alone_has_threads_and_no_ngl(self):
        self.assertEqual(self.columns(), ({"poll": "0", "threads": "1"}, "CPU"))

    def test_a_card_has_ngl(self):
        columns, backend = self.columns(*CARD, "-ngl", "2")
        self.assertEqual(backend, "CUDA")
        self.assertEqual(list(columns)[0], "ngl")
        self.assertEqual(columns["ngl"], "2")
        self.assertEqual(self.columns(*CARD)[0]["ngl"], "-1")
        self.assertEqual(self.columns(*CARD, "-dev", "none"), ({"threads": "1", "poll": "0", "dev": "none"}, "CPU"))

    def test_what_differs_from_the_default_has_a_column_in_the_order_of_the_peer(self):
        columns, backend = self.columns(*CARD, "--sim-device", "XPU3:64MiB", "-ngl", "99", "-C", hex(1 << min(os.sched_getaffinity(0))),
                                        "--cpu-strict", "1", "-b", "64", "-ub", "32", "-sm", "none", "-mg", "1", "-nkvo", "1", "-fa", "1",
                                        "-dev", "CUDA0/XPU3", "-ts", "3/1", "-ot", "attn=CPU", "-lm", "none")
        self.assertEqual(backend, "CUDA,XPU")
        columns.pop("threads", None)
        self.assertEqual(columns, {"ngl": "99", "cpu_mask": hex(1 << min(os.sched_getaffinity(0))), "cpu_strict": "1", "poll": "0", "n_batch": "64",
                                   "n_ubatch": "32", "main_gpu": "1", "sm": "none", "nkvo": "1", "fa": "1", "dev": "CUDA0/XPU3", "ts": "3.00/1.00",
                                   "ot": "attn=CPU", "lm": "none"})
        self.assertEqual(list(columns), ["ngl", "cpu_mask", "cpu_strict", "poll", "n_batch", "n_ubatch", "main_gpu", "sm", "nkvo", "fa", "dev", "ts",
                                         "ot", "lm"])

    def test_attention_and_experts_are_axes(self):
        head, rows = table("-mla", "0,3", "-amb", "512", "-ser", "6,1")
        at = head.index("mla")
        self.assertEqual(head[at:at + 3], ["mla", "amb", "ser"])
        self.assertEqual([row[at:at + 3] for row in rows], [["0", "512", "6,1"], ["3", "512", "6,1"]])
        head, rows = table("-tgb", "1,2")  # beside -t 1
        at = head.index("n_threads_batch")
        self.assertEqual([row[at - 1:at + 1] for row in rows], [["1", "1"], ["1", "2"]])

    def test_flags_that_do_nothing_are_said_once(self):
        said = lines("-ngl", "99", "-ncmoe", "4", "-ot", "nonsense=CPU", "-mla", "3", "-p", "8,9")
        for text in ("the CPU computes everything: ", "--n-cpu-moe 4 has no effect: the model has no experts", "'nonsense' matches no tensor",
                     "-mla 3 has no effect: the model has no latent attention"):
            self.assertEqual(len([line for line in said if text in line]), 1, said)
        self.assertEqual(lines(), [])

    def test_masks_are_an_axis(self):
        mask = hex(1 << min(os.sched_getaffinity(0)))
        head, rows = table("-C", f"0x0,{mask}", "--cpu-strict", "0,1")
        at = head.index("cpu_mask")
        self.assertEqual([row[at:at + 2] for row in rows], [["0x0", "0"], ["0x0", "1"], [mask, "0"], [mask, "1"]])


class Refusals(unittest.TestCase):
    def refused(self, *args):
        done = subprocess.run([TOOL, "-m", LINE[1], "-t", "1", *args], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, [line for line in done.stdout.splitlines() if "t/s" not in line and "---" not in line]), (1, []))
        return done.stderr

    def test_a_test_that_is_too_large_is_named_with_the_sizes_that_make_it_so(self):
        for sizes, label in ((("-p", "2000000000"), "pp2000000000"), (("-p", "8", "-d", "2000000000"), "pp8 @ d2000000000"),
                             (("-pg", "2000000000,2000000000", "-p", "0", "-n", "0"), "pp2000000000+tg2000000000")):
            said = self.refused(*sizes)
            self.assertIn(f"error: {label}: ", said)
            self.assertIn("-p, -n and -d", said)
            self.assertNotRegex(said, r"-c\b(?!t)")

    def test_a_start_without_a_model_says_where_one_is(self):
        for more in ((), ("--dry-run",)):
            done = subprocess.run([TOOL, *more], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, "^error: no model: -m is not given, and there is no models/7B/.*scripts/get-model.sh smollm2")

    def test_a_line_that_asks_for_nothing_is_refused(self):
        self.assertIn("error: there is nothing to measure: -p and -n are 0", self.refused("-p", "0", "-n", "0"))


class Fields(unittest.TestCase):
    def test_what_the_fields_say(self):
        plain = one()
        self.assertEqual([plain[key] for key in ("backends", "gpu_info", "split_mode", "main_gpu", "no_kv_offload", "devices", "tensor_split",
                                                 "cpu_mask", "cpu_strict", "fit_target", "fit_min_ctx")],
                         ["CPU", "", "layer", 0, False, "auto", "0.00", "0x0", False, 0, 0])
        card = one(*CARD, "-ngl", "99", "-nkvo", "1", "-dev", "CUDA0")
        self.assertEqual([card[key] for key in ("backends", "n_gpu_layers", "no_kv_offload", "devices")], ["CUDA", 99, True, "CUDA0"])
        self.assertIn("simulated", card["gpu_info"])
        fitted = one(*CARD, "--fit", "1", "-fitt", "8", "-fitc", "128")
        self.assertEqual([fitted["fit_target"], fitted["fit_min_ctx"]], [8, 128])
        row = next(csv.DictReader(io.StringIO(run("-o", "csv", *CARD, "-ngl", "99"))))
        self.assertEqual((row["backends"], row["n_gpu_layers"], row["no_kv_offload"]), ("CUDA", "99", "0"))


if __name__ == "__main__":
    unittest.main()
