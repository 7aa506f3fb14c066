"""Drives llama-perplexity with tiny models and recomputes its figures from the files of log-probabilities that it writes.

usage: llama_perplexity_test.py LLAMA_PERPLEXITY LLAMA_QUANTIZE     exit status 77: numpy is missing (ctest reports "skipped")
"""
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("the Python package numpy is not installed")
    sys.exit(77)

TOOL, QUANTIZE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
MODEL = "tests/data/models/llama.gguf"
TEXT = " ".join(f"The number {i} is followed by {i + 1}, and that is \\n all.\n" for i in range(60))
N_CTX = 64


def run(*args, expect=0):
    done = subprocess.run([TOOL, *args], capture_output=True, timeout=200, check=False)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == expect, f"{args}: status {done.returncode}\n{done.stderr}"
    return done


class LogProbabilities:
    """The file of --kl-divergence-base."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        assert data[:8] == b"_logits_"
        self.n_ctx, self.n_vocab, self.n_chunk = struct.unpack_from("<iii", data, 8)
        self.tokens = np.frombuffer(data, "<i4", self.n_ctx * self.n_chunk, 20).reshape(self.n_chunk, self.n_ctx)
        words = 2 * ((self.n_vocab + 1) // 2) + 4
        rows = self.n_ctx - 1 - self.n_ctx // 2
        records = np.frombuffer(data, "<u2", words * rows * self.n_chunk, 20 + 4 * self.tokens.size).reshape(-1, words)
        assert len(data) == 20 + 4 * self.tokens.size + records.nbytes
        head = np.ascontiguousarray(records[:, :4]).view("<f4")
        self.log_p = head[:, :1].astype(np.float64) * records[:, 4:4 + self.n_vocab] + head[:, 1:]
        self.next = self.tokens[:, self.n_ctx // 2 + 1:].reshape(-1)

    def nll(self):
        return -self.log_p[np.arange(len(self.next)), self.next]


class Perplexity(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.text = self.path("text.txt")
        with open(self.text, "w", encoding="utf-8") as file:
            file.write(TEXT)
        self.common = ("-t", "1", "-c", str(N_CTX), "-f", self.text)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_perplexity_is_that_of_the_file_of_log_probabilities(self):
        done = run("-m", MODEL, *self.common, "--kl-divergence-base", self.path("base"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["base", "text.txt"])
        base = LogProbabilities(self.path("base"))
        running = re.findall(r"\[(\d+)\]([\d.]+),", done.stdout)
        self.assertEqual([int(n) for n, _ in running], list(range(1, base.n_chunk + 1)))
        nll = base.nll()
        # Probabilities below exp(-16) of the largest are cut in the file.
        self.assertLess(nll.max(), 15)
        for chunk, shown in running:
            expected = np.exp(nll[:int(chunk) * (N_CTX // 2 - 1)].mean())
            self.assertLess(abs(float(shown) / expected - 1), 1e-3)
        error = np.exp(nll.mean()) * nll.std() / np.sqrt(len(nll) - 1)
        final = re.search(rf"Final estimate: PPL over {base.n_chunk} chunks for n_ctx={N_CTX} = ([\d.]+) \+/- ([\d.]+)\n", done.stdout)
        self.assertLess(abs(float(final[1]) / np.exp(nll.mean()) - 1), 1e-3)
        self.assertLess(abs(float(final[2]) / error - 1), 1e-2)
        self.assertIn(f"Final estimate: PPL = {final[1]} +/- {final[2]}", done.stderr)
        self.assertRegex(done.stderr, r"perplexity: [\d.]+ seconds per pass - ETA [\d.]+ minutes")
        log_sum = np.log(np.exp(base.log_p).sum(axis=1))
        self.assertLess(np.abs(log_sum).max(), 1e-2)

    def test_the_batch_changes_nothing(self):
        shown = {run("-m", MODEL, *self.common, "-b", batch).stdout.split("Final")[1] for batch in ("64", "100", "512")}
        values = [float(re.search(r"= ([\d.]+)", text)[1]) for text in shown]
        self.assertLess(max(values) / min(values) - 1, 1e-3)

    def test_a_backslash_in_the_text_is_a_backslash(self):
        run("-m", MODEL, *self.common, "--kl-divergence-base", self.path("one"))
        run("-m", MODEL, *self.common, "--escape", "--kl-divergence-base", self.path("two"))
        one, two = LogProbabilities(self.path("one")).tokens, LogProbabilities(self.path("two")).tokens
        self.assertFalse(one.shape == two.shape and (one == two).all())

    def test_one_line_per_chunk_and_fewer_chunks(self):
        lines = run("-m", MODEL, *self.common, "--ppl-output-type", "1", "--chunks", "3").stdout.splitlines()
        self.assertEqual([int(line.split()[0]) for line in lines[:3]], [0, N_CTX, 2 * N_CTX])
        self.assertIn("over 3 chunks", lines[-1])

    def test_strided_windows(self):
        shown = run("-m", MODEL, *self.common, "--ppl-stride", "32", "--chunks", "4").stdout
        self.assertEqual(len(re.findall(r"\[\d+\][\d.]+,", shown)), 4)
        self.assertNotIn("Final", shown)

    def test_divergence_from_itself_is_nothing(self):
        run("-m", MODEL, *self.common, "--kl-divergence-base", self.path("base"))
        shown = run("-m", MODEL, "-t", "1", "--kl-divergence-base", self.path("base"), "--kl-divergence").stdout
        self.assertRegex(shown, r"Same top p: +(100\.000|99\.\d+) ±")
        self.assertLess(abs(float(re.search(r"Mean    KLD: +(-?[\d.]+)", shown)[1])), 1e-4)

    def test_statistics_are_those_of_the_two_files(self):
        run("-m", MODEL, *self.common, "--kl-divergence-base", self.path("base"))
        quantised = self.path("q4_0.gguf")
        subprocess.run([QUANTIZE, MODEL, quantised, "q4_0"], check=True, capture_output=True)
        run("-m", quantised, *self.common, "--kl-divergence-base", self.path("other"))
        shown = run("-m", quantised, "-t", "1", "--kl-divergence-base", self.path("base"), "--kl-divergence").stdout
        base, other = LogProbabilities(self.path("base")), LogProbabilities(self.path("other"))
        p = np.exp(base.log_p)
        kl = (np.where(base.log_p > -16, p * (base.log_p - other.log_p), 0)).sum(axis=1)
        dp = np.exp(-other.nll()) - np.exp(-base.nll())

        def value(label):
            return float(re.search(re.escape(label) + r" *(-?[\d.]+)", shown)[1])

        def close(label, expected, bound):
            self.assertLess(abs(value(label) - expected), bound, f"{label} {expected}\n{shown}")

        scale = np.exp(base.nll().mean())
        close("Mean PPL(Q)                   :", np.exp(other.nll().mean()), 2e-3 * scale)
        close("Mean PPL(base)                :", scale, 2e-3 * scale)
        close("Mean ln(PPL(Q)/PPL(base))     :", other.nll().mean() - base.nll().mean(), 1e-3)
        close("Cor(ln(PPL(Q)), ln(PPL(base))):", 100 * np.corrcoef(other.nll(), base.nll())[0, 1], 0.5)
        close("Mean    KLD:", kl.mean(), 5e-4)
        close("Maximum KLD:", kl.max(), 5e-3)
        close("90.0%   KLD:", np.quantile(kl, 0.9), 2e-3)
        close("Median  KLD:", np.quantile(kl, 0.5), 1e-3)
        close("Mean    Δp:", 100 * dp.mean(), 0.02)
        close("RMS Δp    :", 100 * np.sqrt((dp**2).mean()), 0.05)
        close("25.0%   Δp:", 100 * np.quantile(dp, 0.25), 0.02)
        close("Same top p:", 100 * (base.log_p.argmax(axis=1) == other.log_p.argmax(axis=1)).mean(), 0.5)
        rows = [line for line in shown.splitlines() if re.match(r" *\d+    ", line)]
        self.assertEqual(len(rows), base.n_chunk)

    def test_hellaswag(self):
        with open(self.path("tasks"), "w", encoding="utf-8") as file:
            for i in range(5):
                file.write(f"The number {i}\n{i % 4}\nis one\nis two\nis a three\nis four of them\n")
        shown = run("-m", MODEL, "-t", "1", "-f", self.path("tasks"), "--hellaswag").stdout.splitlines()
        self.assertEqual(shown[1], "task\tacc_norm\t95% confidence interval")
        self.assertRegex(shown[-1], r"^5\t[\d.]+%\t\[[\d.]+%, [\d.]+%\]$")
        shown = run("-m", MODEL, "-t", "1", "-f", self.path("tasks"), "--hellaswag", "--hellaswag-tasks", "2").stdout
        self.assertEqual(len(shown.splitlines()), 4)

    def test_winogrande(self):
        with open(self.path("tasks"), "w", encoding="utf-8") as file:
            file.write('0,Sarah was better than Maria so _ always got the easier cases.,Sarah,Maria,2\n1,"The cup, which _ held, fell.",he,she,1\n')
        shown = run("-m", MODEL, "-t", "1", "-f", self.path("tasks"), "--winogrande").stdout.splitlines()
        self.assertRegex(shown[0], r"^1\t[\d.]+\t +-[\d.]+ +-[\d.]+  [12]  2$")
        self.assertRegex(shown[1], r"^2\t[\d.]+\t +-[\d.]+ +-[\d.]+  [12]  1$")

    def test_multiple_choice(self):
        def text(words):
            return struct.pack("<I", len(words)) + words.encode()

        tasks = [text(f"Question {i}:") + struct.pack("<I", 2) + text("yes") + text("no") + struct.pack("<ii", 1, 0) + struct.pack("<I", 0) for i in range(3)]
        offsets = np.cumsum([0] + [len(task) for task in tasks[:-1]])
        with open(self.path("tasks"), "wb") as file:
            file.write(struct.pack("<I3I", 3, *offsets) + b"".join(tasks))
        shown = run("-m", MODEL, "-t", "1", "-bf", self.path("tasks"), "--multiple-choice").stdout
        self.assertRegex(shown, r"3\t[\d.]+\n\nFinal result: [\d.]+ \+/- [\d.]+\nRandom chance: 50\.0000 \+/- [\d.]+\n")

    def test_mistakes_give_one_clear_error(self):
        with open(self.path("bad"), "wb") as file:
            file.write(b"_logits_" + struct.pack("<iii", 64, 7, 1))
        for args, message in ((("-p", "short"), "at least 128 tokens"),
                              ((), "no text was given"),
                              (("--kl-divergence",), "needs a file to compare with"),
                              (("--kl-divergence", "--kl-divergence-base", self.path("none")), "cannot be opened"),
                              (("--kl-divergence", "--kl-divergence-base", self.text), "no file of log-probabilities"),
                              (("--kl-divergence", "--kl-divergence-base", self.path("bad")), "cannot be in"),
                              (("-f", self.text, "--kl-divergence-base", self.path("no/file")), "cannot write"),
                              (("-f", self.text, "--kl-divergence-base", self.text), "which this run reads"),
                              (("-f", self.text, "--kl-divergence-base", MODEL), "which this run reads"),
                              (("-f", self.text, "--kl-divergence-base", "/dev/null"), "not a regular file"),
                              (("-f", self.text, "--chunks", "0"), "nothing to evaluate"),
                              (("-f", self.text, "--ppl-stride", "500"), "leaves no context"),
                              (("-f", self.text, "--hellaswag"), "no number of an ending"),
                              (("-f", self.text, "--winogrande"), "line 1"),
                              (("-bf", self.text, "--multiple-choice"), "no multiple-choice tasks")):
            with self.subTest(args=args):
                errors = run("-m", MODEL, "-t", "1", "-c", "64", *args, expect=1).stderr
                self.assertIn(message, errors)
                self.assertEqual(len([line for line in errors.splitlines() if line.startswith("error")]), 1, errors)

    def test_no_half_file_is_left(self):
        command = [TOOL, "-m", MODEL, *self.common, "--kl-divergence-base", self.path("base")]
        limited = subprocess.run(["bash", "-c", 'ulimit -f 10; exec "$@"', "_", *command], capture_output=True, timeout=200, check=False)
        self.assertEqual(limited.returncode, 1)
        self.assertIn(b"File too large", limited.stderr)
        self.assertEqual(os.listdir(self.folder), ["text.txt"])
        with open(self.text, "a", encoding="utf-8") as file:
            file.write(TEXT * 200)
        for signal in ("SIGINT", "SIGTERM", "SIGHUP"):
            stopped = subprocess.run(["timeout", "-s", signal, "0.5", *command], capture_output=True, timeout=200, check=False)
            self.assertIn(b"nothing was kept", stopped.stderr)
            self.assertEqual(os.listdir(self.folder), ["text.txt"])


unittest.main()
