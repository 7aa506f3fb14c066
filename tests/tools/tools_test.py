"""What holds for every program, tried on the real ones with a tiny model. Standard library only.

usage: tools_test.py FOLDER_WITH_THE_PROGRAMS
"""

import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = sys.argv.pop(1)
MODEL = "tests/data/models/llama.gguf"
RUN = ("-m", MODEL, "-t", "1", "-c", "256")
BENCH = ("-m", MODEL, "-t", "1", "-p", "8", "-n", "2", "-r", "1")
SCORE = ("-m", MODEL, "-t", "1", "-c", "16", "-p", "the model " * 20)
OUTPUTS = tempfile.TemporaryDirectory()

PROGRAMS = {
    "llama-server": (*RUN, "--port", "0"),
    "llama-cli": (*RUN, "-no-cnv", "-p", "the", "-n", "4"),
    "llama-sweep-bench": (*RUN, "-ub", "64", "-n", "2"),
    "llama-tokenize": ("-m", MODEL, "-p", "the"),
    "llama-bench": BENCH,
    "llama-gguf": (MODEL,),
    "llama-gguf synth": ("--list",),
    "llama-gguf-split": ("--dry-run", MODEL, "prefix"),
    "llama-quantize": ("--dry-run", MODEL, "q8_0"),
    "llama-perplexity": SCORE,
    "llama-imatrix": (*SCORE, "-o", os.path.join(OUTPUTS.name, "imatrix.gguf")),
}


def run(program, *args, stdout=subprocess.PIPE, stdin=b"", environment=None):
    name, *subcommand = program.split()
    command = [os.path.join(FOLDER, name), *subcommand, *args]
    return subprocess.run(command, input=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment, timeout=100, check=False)


def errors(done):
    return [line for line in done.stderr.decode().splitlines() if line.startswith("error")]


class FullOutput(unittest.TestCase):
    def fails(self, program, *args, **more):
        with open("/dev/full", "wb") as full, self.subTest(program=program, args=args):
            done = run(program, *args, stdout=full, **more)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(len(errors(done)), 1, done.stderr)
            self.assertIn("standard output could not be written", errors(done)[0])

    def test_results_that_cannot_be_written_end_with_status_1_and_one_error(self):
        for program, args in PROGRAMS.items():
            if program not in ("llama-server", "llama-sweep-bench"):  # they write to standard error
                self.fails(program, *args)
        self.fails("llama-cli", *RUN, "-cnv", "-n", "4", stdin=b"the\nmodel\n")
        self.fails("llama-gguf", MODEL, "--json")
        self.fails("llama-tokenize", "-m", MODEL, "-p", "the", "--ids")
        for form in ("csv", "json", "jsonl", "sql"):
            self.fails("llama-bench", *BENCH, "-o", form)

    def test_neither_can_help_and_completion(self):
        for program in PROGRAMS:
            self.fails(program, "--help")
            self.fails(program, "--completion-bash")
        self.fails("llama-cli", "--list-devices")

    def test_a_copy_of_the_sweep_that_cannot_be_written_is_an_error(self):
        done = run("llama-sweep-bench", *PROGRAMS["llama-sweep-bench"], "--output-file", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(errors(done)), 1, done.stderr)
        self.assertIn("/dev/full", errors(done)[0])

    def test_a_result_of_synth_that_cannot_be_written_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            size = ("--preset", "qwen3-0.6b", "--layers", "1", "--vocab", "300", "--sparse")
            self.fails("llama-gguf synth", *size, "-o", os.path.join(folder, "m.gguf"))


class Errors(unittest.TestCase):
    def test_a_missing_model_is_one_line_that_begins_with_error(self):
        for program, args in PROGRAMS.items():
            if program == "llama-gguf synth":
                continue
            with self.subTest(program=program):
                done = run(program, *("no/such/file.gguf" if arg == MODEL else arg for arg in args))
                self.assertEqual(done.returncode, 1)
                self.assertEqual(len(errors(done)), 1, done.stderr)
                self.assertTrue(errors(done)[0].startswith("error: "), done.stderr)
                self.assertIn("no/such/file.gguf", errors(done)[0])

    def test_the_variable_that_forces_an_instruction_set_reaches_every_program_that_computes(self):
        for program in ("llama-server", "llama-cli", "llama-sweep-bench", "llama-bench", "llama-perplexity", "llama-imatrix"):
            with self.subTest(program=program):
                done = run(program, *PROGRAMS[program], environment={**os.environ, "GGML_CPU_ISA": "nope"})
                self.assertEqual(done.returncode, 1)
                self.assertIn("GGML_CPU_ISA=nope", errors(done)[0])

    def test_an_unknown_option_gets_the_nearest_spelling(self):
        for program in PROGRAMS:
            with self.subTest(program=program):
                done = run(program, "--versoin")
                self.assertEqual(done.returncode, 1)
                self.assertEqual(errors(done), ["error: invalid argument: --versoin"])
                self.assertIn(b"Did you mean --version?", done.stderr)

    def test_every_program_has_version_and_grouped_help(self):
        for program in PROGRAMS:
            with self.subTest(program=program):
                self.assertTrue(run(program, "--version").stderr.startswith(b"version: "))
                text = run(program, "--help").stdout.decode()
                self.assertTrue(text.startswith(f"usage: {program}"), text[:100])
                self.assertIn("\nGeneral:\n", text)


if __name__ == "__main__":
    unittest.main()
