"""Drives llama-imatrix with tiny models against the public Python package `gguf`, and llama-quantize with what it writes.

usage: llama_imatrix_test.py LLAMA_IMATRIX LLAMA_QUANTIZE     exit status 77: the package is missing (ctest reports "skipped")
"""
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import gguf
    import numpy as np
except ImportError:
    print("the Python packages gguf and numpy are not installed")
    sys.exit(77)

TOOL, QUANTIZE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
MODEL = "tests/data/models/llama.gguf"
EXPERTS = "tests/data/models/mixtral.gguf"
TEXT = " ".join(f"The number {i} is followed by {i + 1}, and that is all.\n" for i in range(80))
N_CTX = 64


def run(*args, expect=0, tool=TOOL):
    done = subprocess.run([tool, *args], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == expect, f"{args}: status {done.returncode}\n{done.stderr}"
    return done


def sums(path):
    tensors = {t.name: t.data.astype(np.float64) for t in gguf.GGUFReader(path).tensors}
    return {name[:-len(".in_sum2")]: (data, tensors[name[:-len(".in_sum2")] + ".counts"]) for name, data in tensors.items() if name.endswith(".in_sum2")}


def legacy(path):
    with open(path, "rb") as file:
        data = file.read()
    out, at = {}, 4
    for _ in range(struct.unpack_from("<i", data)[0]):
        length, = struct.unpack_from("<i", data, at)
        name = data[at + 4:at + 4 + length].decode()
        calls, n = struct.unpack_from("<ii", data, at + 4 + length)
        at += 12 + length
        out[name] = np.frombuffer(data, "<f4", n, at).astype(np.float64) / calls
        at += 4 * n
    chunks, length = struct.unpack_from("<ii", data, at)
    return out, chunks, data[at + 8:at + 8 + length].decode()


class Imatrix(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.text = self.path("text.txt")
        with open(self.text, "w", encoding="utf-8") as file:
            file.write(TEXT)
        self.out = self.path("m.gguf")
        self.common = ("-t", "1", "-c", str(N_CTX), "-f", self.text)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_every_weight_of_the_layers_counts_every_token(self):
        done = run("-m", MODEL, *self.common, "--chunks", "5", "-o", self.out)
        self.assertEqual(len(re.findall(r"\[\d+\][\d.]+,", done.stdout)), 5)
        self.assertIn("Final estimate: PPL over 5 chunks", done.stdout)
        found = sums(self.out)
        wanted = {t.name: t for t in gguf.GGUFReader(MODEL).tensors if t.name.startswith("blk.") and len(t.shape) > 1}
        self.assertEqual(found.keys(), wanted.keys())
        for name, (squares, counts) in found.items():
            self.assertEqual(squares.shape[-1], wanted[name].shape[0])
            self.assertEqual(counts.sum(), 5 * N_CTX)
            self.assertTrue((squares > 0).all())
        # What the three projections of attention share is summed alike.
        self.assertTrue((found["blk.0.attn_q.weight"][0] == found["blk.0.attn_k.weight"][0]).all())
        fields = gguf.GGUFReader(self.out)
        self.assertEqual(fields.get_field("general.type").contents(), "imatrix")
        self.assertEqual(fields.get_field("imatrix.datasets").contents(), [self.text])
        self.assertEqual(fields.get_field("imatrix.chunk_count").contents(), 5)
        self.assertEqual(fields.get_field("imatrix.chunk_size").contents(), N_CTX)

    def test_the_normalised_input_has_the_spread_that_its_norm_gives(self):
        # The input of attn_q is norm(x) * weight, whose mean square is that of the weight.
        run("-m", MODEL, *self.common, "-o", self.out)
        squares, counts = sums(self.out)["blk.0.attn_q.weight"]
        norm = next(t.data for t in gguf.GGUFReader(MODEL).tensors if t.name == "blk.0.attn_norm.weight").astype(np.float64)
        mean = (squares / counts.reshape(-1, 1)).reshape(-1)
        self.assertLess(abs((mean / norm**2).mean() - 1), 0.02)

    def test_experts_have_counts_of_their_own(self):
        run("-m", EXPERTS, *self.common, "-o", self.out)
        squares, counts = sums(self.out)["blk.0.ffn_down_exps.weight"]
        model = gguf.GGUFReader(EXPERTS)
        used = model.get_field("llama.expert_used_count").contents()
        chunks = gguf.GGUFReader(self.out).get_field("imatrix.chunk_count").contents()
        self.assertEqual(len(counts), model.get_field("llama.expert_count").contents())
        self.assertEqual(counts.sum(), chunks * N_CTX * used)

    def test_the_matrices_of_latent_attention_have_a_row_for_each_head(self):
        folder = os.path.join(os.environ.get("TANDEM_SHARED", "../shared"), "data", "models")
        for name, split in (("deepseek2-v3-split", True), ("deepseek2-v3", False)):
            model = os.path.join(folder, name + ".gguf")
            if not os.path.exists(model):
                self.skipTest("the big fixtures are not there")
            run("-m", model, *self.common, "--chunks", "2", "-o", self.out)
            found, tokens = sums(self.out), 2 * N_CTX
            weights = {t.name: [int(n) for n in t.shape] for t in gguf.GGUFReader(model).tensors if re.search(r"attn_(k|v|kv)_b\.weight", t.name)}
            self.assertTrue(weights)
            self.assertFalse([n for n in found if "derived" in n])
            for weight, shape in weights.items():
                squares, counts = found[weight]
                self.assertEqual(squares.shape[-1], shape[0])
                self.assertTrue((squares > 0).all())
                # One row for each head's matrix; in one matrix for all of them every head's output counts.
                self.assertEqual(counts.reshape(-1).tolist(), [tokens] * shape[2] if split else [tokens * 4])
            if split:  # a quantiser takes them
                done = run("--imatrix", self.out, "--tensor-type", "ffn_down_.*exp=f16", model, self.path("q.gguf"), "q4_0", tool=QUANTIZE)
                self.assertNotRegex(done.stdout + done.stderr, r"attn_[kv]_b.*not in the importance matrix")

    def test_both_formats_hold_the_same_means(self):
        run("-m", EXPERTS, *self.common, "-o", self.out)
        run("-m", EXPERTS, *self.common, "-o", self.path("m.dat"))
        means, chunks, dataset = legacy(self.path("m.dat"))
        self.assertEqual(dataset, self.text)
        self.assertEqual(chunks, gguf.GGUFReader(self.out).get_field("imatrix.chunk_count").contents())
        for name, (squares, counts) in sums(self.out).items():
            counts = counts.reshape(-1, 1)
            expected = np.where(counts > 0, squares.reshape(len(counts), -1) / np.maximum(counts, 1), 1).reshape(-1)
            self.assertLess(np.abs(means[name] / expected - 1).max(), 1e-5, name)

    def test_a_run_is_resumed_and_files_are_merged(self):
        whole, one, two = self.path("whole.gguf"), self.path("one.gguf"), self.path("two.gguf")
        run("-m", MODEL, *self.common, "-o", whole, "--chunks", "6")
        run("-m", MODEL, *self.common, "-o", one, "--chunks", "2")
        run("-m", MODEL, *self.common, "-o", self.out, "--in-file", one, "--chunk", "2", "--chunks", "4")
        run("-m", MODEL, *self.common, "-o", two, "--chunk", "2", "--chunks", "4", "--no-ppl")
        run("--in-file", one, "--in-file", two, "-o", self.path("merged.gguf"))
        run("--in-file", two, "-o", self.path("two.dat"))
        for path in (self.out, self.path("merged.gguf")):
            self.assertEqual(gguf.GGUFReader(path).get_field("imatrix.chunk_count").contents(), 6)
            for name, (squares, counts) in sums(path).items():
                self.assertEqual(counts.sum(), 6 * N_CTX)
                # The first chunk of a text begins with BOS either way.
                self.assertLess(np.abs(squares / sums(whole)[name][0] - 1).max(), 1e-4, name)

    def test_files_are_written_on_the_way(self):
        done = run("-m", MODEL, *self.common, "-o", self.out, "--chunks", "5", "-ofreq", "2", "--save-frequency", "3", "-b", "512")
        self.assertEqual(sorted(os.listdir(self.folder)), ["m.gguf", "m.gguf.at_3", "text.txt"])
        self.assertEqual(gguf.GGUFReader(self.out + ".at_3").get_field("imatrix.chunk_count").contents(), 3)
        self.assertEqual(len(re.findall(r"stored the data of (\d) chunks in .*m.gguf\n", done.stderr)), 3)

    def test_the_output_tensor_on_request(self):
        run("-m", MODEL, *self.common, "-o", self.out, "--process-output", "--chunks", "2")
        self.assertIn("output.weight", sums(self.out))

    def test_statistics(self):
        run("-m", MODEL, *self.common, "-o", self.out, "--chunks", "2")
        shown = run("--show-statistics", "--in-file", self.out).stdout
        self.assertIn("blk.0.ffn_down.weight", shown)
        self.assertIn("CosSim", shown)

    def test_an_interruption_keeps_what_was_read(self):
        with open(self.text, "w", encoding="utf-8") as file:
            file.write(TEXT * 40)
        child = subprocess.Popen([TOOL, "-m", MODEL, *self.common, "-o", self.out, "-b", "64"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        child.stdout.read(5)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=200)
        self.assertEqual(child.returncode, 1)
        self.assertGreater(gguf.GGUFReader(self.out).get_field("imatrix.chunk_count").contents(), 0)

    def test_llama_quantize_uses_it(self):
        run("-m", MODEL, *self.common, "-o", self.out, "--chunks", "2")
        run("--imatrix", self.out, MODEL, self.path("q.gguf"), "q4_0", tool=QUANTIZE)
        run(MODEL, self.path("p.gguf"), "q4_0", tool=QUANTIZE)
        one, two = (dict((t.name, t.data.tobytes()) for t in gguf.GGUFReader(self.path(n)).tensors) for n in ("q.gguf", "p.gguf"))
        self.assertNotEqual(one["blk.0.attn_q.weight"], two["blk.0.attn_q.weight"])
        self.assertEqual(one["token_embd.weight"], two["token_embd.weight"])

    def test_mistakes_give_one_clear_error(self):
        for args, message in ((("-m", MODEL), "no text was given"),
                              (("-f", self.text), "no model"),
                              (("-m", MODEL, "-f", self.text, "-c", "9999"), "at least 19998 tokens"),
                              (("-m", MODEL, *self.common, "--chunk", "999"), "skips the whole text"),
                              (("-m", MODEL, *self.common, "--in-file", self.text), "no importance matrix"),
                              (("-m", MODEL, *self.common, "-o", self.path("no/m.gguf"), "--chunks", "1"), "cannot create"),
                              (("-m", MODEL, *self.common, "-o", self.text), "which this run reads"),
                              (("-m", MODEL, *self.common, "-o", MODEL), "which this run reads"),
                              (("-m", MODEL, *self.common, "-o", self.path("m.gguf"), "--chunks", "0"), "nothing to evaluate"),
                              (("--show-statistics", "-m", MODEL), "needs a file"),
                              (("-m", MODEL, *self.common, "--output-format", "txt"), "gguf or dat")):
            with self.subTest(args=args):
                errors = run(*args, expect=1).stderr
                self.assertIn(message, errors)
                self.assertEqual(os.listdir(self.folder), ["text.txt"])


unittest.main()
