"""Drives llama-quantize against the public Python package `gguf`, which must read and decode what it writes.

usage: llama_quantize_test.py LLAMA_QUANTIZE     exit status 77: the package is missing (ctest reports "skipped")
"""
import glob
import os
import resource
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

TOOL = os.path.abspath(sys.argv.pop(1))
MODEL = "tests/data/models/llama.gguf"
QUANTISED = "tests/data/models/llama-q8_0.gguf"
PARTS = "tests/data/models/split3-00001-of-00003.gguf"
TYPE_NAMES = {kind.name.lower(): kind for kind in gguf.GGMLQuantizationType}

# Root mean square error relative to that of the weights; generous, the exact bounds are those of the types' own tests.
ERRORS = {"f16": 1e-3, "bf16": 5e-3, "q8_0": 0.01, "q6_k": 0.03, "q5_k": 0.05, "q5_0": 0.06, "q5_1": 0.06, "q4_k": 0.1, "q4_0": 0.12, "q4_1": 0.1,
          "iq4_nl": 0.11, "iq4_xs": 0.11, "q3_k": 0.2, "iq3_s": 0.25, "q2_k": 0.4, "mxfp4": 0.15, "iq3_xxs": 0.35, "iq2_s": 0.5, "iq2_xs": 0.5,
          "iq2_xxs": 0.6, "iq1_s": 0.8, "iq1_m": 0.8}


def run(*args, expect=0, **more):
    done = subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=300, check=False, **more)
    assert done.returncode == expect, f"{args}: status {done.returncode}\n{done.stderr}"
    return done


def weights(path):
    return {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in gguf.GGUFReader(path).tensors}


def types(path):
    return {t.name: t.tensor_type.name.lower() for t in gguf.GGUFReader(path).tensors}


def wide_model(path, experts=0, dtype=np.float32, layers=4, width=256, bad=None):
    """A model whose rows divide into blocks of 256."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(2 * width)
    if experts:
        writer.add_expert_count(experts)
    rows = [("token_embd.weight", (64, width)), ("output_norm.weight", (width,)), ("output.weight", (64, width))]
    for i in range(layers):
        rows += [(f"blk.{i}.attn_norm.weight", (width,)), (f"blk.{i}.attn_q.weight", (width, width)), (f"blk.{i}.attn_v.weight", (64, width)),
                 (f"blk.{i}.attn_output.weight", (width, width))]
        if experts:
            rows += [(f"blk.{i}.ffn_gate_inp.weight", (experts, width)), (f"blk.{i}.ffn_down_exps.weight", (experts, width, 2 * width))]
        else:
            rows.append((f"blk.{i}.ffn_down.weight", (width, 2 * width)))
    for name, shape in rows:
        plain = len(shape) == 1 or "gate_inp" in name
        values = random.standard_t(5, shape).astype(np.float32) * 0.05
        if bad is not None and name == "blk.1.attn_q.weight":
            values[3, 5] = bad
        writer.add_tensor(name, values if plain else values.astype(dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Quantize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = self.path("out.gguf")

    def path(self, name):
        return os.path.join(self.folder, name)

    def check(self, source, output):
        before, after, kinds = weights(source), weights(output), types(output)
        self.assertEqual(before.keys(), after.keys())
        for name, kind in kinds.items():
            if kind == "f32":
                continue
            spread = np.sqrt(np.mean(before[name]**2))
            error = np.sqrt(np.mean((before[name] - after[name])**2)) / spread
            self.assertLess(error, ERRORS[kind], f"{name} {kind}")

    def test_every_file_type_of_llama_cpp_is_read_by_the_package(self):
        wide_model(self.path("in.gguf"), layers=1)
        for name in ("f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k iq4_nl iq4_xs iq3_s iq3_m "
                     "mxfp4_moe").split():
            with self.subTest(name=name):
                run(self.path("in.gguf"), self.out, name.upper())
                self.check(self.path("in.gguf"), self.out)
        for name in "iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m iq3_xs iq3_xxs q2_k_s".split():
            with self.subTest(name=name):
                run("--ignore-imatrix-rules", self.path("in.gguf"), self.out, name)
                self.check(self.path("in.gguf"), self.out)

    def test_sources_of_16_bits_experts_and_rows_that_do_not_divide(self):
        wide_model(self.path("in.gguf"), experts=8, dtype=np.float16)
        run(self.path("in.gguf"), self.out, "q4_k_m")
        self.check(self.path("in.gguf"), self.out)
        self.assertEqual(types(self.out)["blk.0.attn_v.weight"], "q8_0")
        self.assertEqual(types(self.out)["blk.0.ffn_gate_inp.weight"], "f32")
        wide_model(self.path("odd.gguf"), width=96)
        done = run(self.path("odd.gguf"), self.out, "q4_k_m")
        self.check(self.path("odd.gguf"), self.out)
        self.assertIn("does not divide", done.stdout)
        self.assertIn("got another type", done.stderr)

    def test_the_peers_command_lines(self):
        wide_model(self.path("in.gguf"))
        run(self.path("in.gguf"), "Q4_0")
        self.assertEqual(gguf.GGUFReader(self.path("ggml-model-Q4_0.gguf")).get_field("general.file_type").contents(), 2)
        run(self.path("in.gguf"), "7", "2")
        self.assertTrue(os.path.exists(self.path("ggml-model-Q8_0.gguf")))
        run(self.path("in.gguf"), self.out, "15", "1")
        fields = gguf.GGUFReader(self.out)
        self.assertEqual(fields.get_field("general.file_type").contents(), 15)
        self.assertEqual(fields.get_field("general.quantization_version").contents(), 2)
        run("--allow-requantize", "--output-tensor-type", "q8_0", "--token-embedding-type", "F16", "--tensor-type", "ATTN_Q=q5_k", "--tensor-type",
            "attn=q6_k", "--custom-q", r"blk\.[0-1]\.ffn_down=iq4_nl,blk\.2\.ffn_(down|up)=q5_0", self.path("in.gguf"), self.out, "Q4_K_M", "2")
        self.check(self.path("in.gguf"), self.out)
        kinds = types(self.out)
        self.assertEqual([kinds[n] for n in ("output.weight", "token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.1.ffn_down.weight",
                                             "blk.2.ffn_down.weight", "blk.3.ffn_down.weight")],
                         ["q8_0", "f16", "q5_k", "q6_k", "iq4_nl", "q5_0", "q6_k"])
        run("--pure", self.path("in.gguf"), self.out, "q4_k_m")
        self.assertEqual(set(types(self.out).values()), {"f32", "q4_k"})
        run("--attn-q-type", "q8_0", "--leave-output-tensor", self.path("in.gguf"), self.out, "q4_k_m")
        self.assertEqual([types(self.out)[n] for n in ("blk.0.attn_q.weight", "output.weight")], ["q8_0", "f32"])
        with open(self.path("rules"), "w", encoding="utf-8") as rules:
            rules.write("attn_q=q8_0\nffn_down=q5_0 ")
        run("--tensor-type-file", self.path("rules"), self.path("in.gguf"), self.out, "q4_k_m")
        self.assertEqual([types(self.out)[f"blk.0.{n}.weight"] for n in ("attn_q", "ffn_down")], ["q8_0", "q5_0"])

    def test_an_importance_matrix_is_used_and_recorded(self):
        wide_model(self.path("in.gguf"), experts=2)
        gguf_matrix, legacy = self.path("m.gguf"), self.path("m.dat")
        shapes = {t.name: [int(n) for n in t.shape] for t in gguf.GGUFReader(self.path("in.gguf")).tensors}
        means = {}
        for name, shape in shapes.items():
            if name.startswith("blk.") and len(shape) > 1:
                matrices = shape[2] if len(shape) > 2 else 1
                # The first columns count a lot.
                means[name] = np.tile(np.where(np.arange(shape[0]) % 8 == 0, 100, 0.01), (matrices, 1)).astype(np.float32)
        writer = gguf.GGUFWriter(gguf_matrix, "")
        writer.add_type("imatrix")
        writer.add_array("imatrix.datasets", ["words.txt"])
        writer.add_uint32("imatrix.chunk_count", 7)
        writer.add_uint32("imatrix.chunk_size", 512)
        for name, mean in means.items():
            writer.add_tensor(name + ".in_sum2", mean * 3)
            writer.add_tensor(name + ".counts", np.full((len(mean), 1), 3, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with open(legacy, "wb") as file:
            file.write(struct.pack("<i", len(means)))
            for name, mean in means.items():
                file.write(struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 2, mean.size) + (mean * 2).tobytes())
            file.write(struct.pack("<ii", 7, 9) + b"words.txt")

        plain, one, two = self.path("plain.gguf"), self.path("one.gguf"), self.path("two.gguf")
        run(self.path("in.gguf"), plain, "q4_k_s")
        run("--imatrix", gguf_matrix, self.path("in.gguf"), one, "q4_k_s")
        run("--imatrix", legacy, "--hide-imatrix", self.path("in.gguf"), two, "q4_k_s")
        source, unweighted, weighted = weights(self.path("in.gguf")), weights(plain), weights(one)
        for name in means:
            if "gate_inp" in name:
                continue
            axis = np.arange(source[name].shape[-1]) % 8 == 0
            error = [np.mean((source[name] - w[name])[..., axis]**2) for w in (unweighted, weighted)]
            self.assertLess(error[1], 0.7 * error[0], name)
        for name, values in weights(two).items():
            self.assertTrue((values == weighted[name]).all(), name)
        fields = gguf.GGUFReader(one)
        self.assertEqual(fields.get_field("quantize.imatrix.file").contents(), gguf_matrix)
        self.assertEqual(fields.get_field("quantize.imatrix.dataset").contents(), "words.txt")
        self.assertEqual(fields.get_field("quantize.imatrix.chunks_count").contents(), 7)
        self.assertEqual(fields.get_field("quantize.imatrix.entries_count").contents(), len(means))
        self.assertIsNone(gguf.GGUFReader(two).get_field("quantize.imatrix.file"))
        run("--imatrix", gguf_matrix, self.path("in.gguf"), one, "iq2_xs")

    def test_parts_in_and_out(self):
        run("--allow-requantize", PARTS, self.out, "q8_0")
        whole = weights(self.out)
        run("--allow-requantize", "--keep-split", PARTS, self.path("part.gguf"), "q8_0")
        parts = sorted(glob.glob(self.path("part-*-of-00003.gguf")))
        self.assertEqual(len(parts), 3)
        joined = {}
        for part in parts:
            joined |= weights(part)
        self.assertEqual(joined.keys(), whole.keys())
        for name, values in joined.items():
            self.assertTrue((values == whole[name]).all(), name)
        self.assertEqual(gguf.GGUFReader(parts[0]).get_field("split.count").contents(), 3)

    def test_overrides_and_pruned_layers(self):
        wide_model(self.path("in.gguf"))
        run("--override-kv", "llama.context_length=int:99,general.name=str:tiny", "--prune-layers", "1,2", self.path("in.gguf"), self.out, "q8_0")
        fields = gguf.GGUFReader(self.out)
        self.assertEqual(fields.get_field("llama.context_length").contents(), 99)
        self.assertEqual(fields.get_field("llama.context_length").types, [gguf.GGUFValueType.UINT32])
        self.assertEqual(fields.get_field("general.name").contents(), "tiny")
        self.assertEqual(fields.get_field("llama.block_count").contents(), 2)
        before, after = weights(self.path("in.gguf")), weights(self.out)
        self.assertFalse(any(name.startswith("blk.2.") for name in after))
        self.assertLess(np.abs(after["blk.1.attn_q.weight"] - before["blk.3.attn_q.weight"]).max(), 0.01)

    def test_a_dry_run_writes_nothing_and_counts_as_the_file_does(self):
        wide_model(self.path("in.gguf"))
        shown = run("--dry-run", self.path("in.gguf"), self.out, "q4_k_m").stdout
        self.assertFalse(os.path.exists(self.out))
        written = run(self.path("in.gguf"), self.out, "q4_k_m").stdout
        self.assertIn(shown.strip().splitlines()[-1], written)
        size = sum(t.n_bytes for t in gguf.GGUFReader(self.out).tensors) / 2**20
        self.assertIn(f"{size:9.2f} MiB", shown.strip().splitlines()[-1])

    def test_copy_changes_no_weight(self):
        run(QUANTISED, self.out, "COPY")
        before, after = gguf.GGUFReader(QUANTISED), gguf.GGUFReader(self.out)
        self.assertEqual({t.name: t.data.tobytes() for t in before.tensors}, {t.name: t.data.tobytes() for t in after.tensors})

    def fails(self, message, *args, **more):
        before = sorted(os.listdir(self.folder))
        errors = run(*args, expect=1, **more).stderr
        self.assertIn(message, errors)
        self.assertEqual(len([line for line in errors.splitlines() if line.startswith("error")]), 1, errors)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_mistakes_give_one_clear_error_and_no_file(self):
        wide_model(self.path("in.gguf"))
        source = self.path("in.gguf")
        self.fails("an input and a type are needed", source)
        self.fails("is no file type", source, self.out, "q4_k_xl")
        self.fails("no number of threads", source, self.out, "q4_0", "many")
        self.fails("none.gguf", "none.gguf", self.out, "q4_0")
        self.fails("is quantised already", QUANTISED, self.out, "q4_0")
        self.fails("useless without an importance matrix", source, self.out, "iq2_xxs")
        self.fails("name of a tensor type", "--output-tensor-type", "q9", source, self.out, "q4_0")
        self.fails("PATTERN=TYPE", "--custom-q", "attn", source, self.out, "q4_0")
        self.fails("does not compile", "--custom-q", "(=q8_0", source, self.out, "q4_0")
        self.fails("no importance matrix", "--imatrix", __file__, source, self.out, "q4_0")
        self.fails("exclude one another", "--include-weights", "a", "--exclude-weights", "b", source, self.out, "q4_0")
        self.fails("same file", source, source, "q4_0")
        self.fails("cannot create", source, self.path("no/out.gguf"), "q4_0")
        self.fails("not a regular file", source, "/dev/null", "q4_0")
        self.fails("the name of the output is empty", source, "", "q4_0")
        self.fails("the name of the input is empty", "", self.out, "q4_0")
        self.fails("/proc/out.gguf.part: cannot create", source, "/proc/out.gguf", "q4_0")
        self.fails("divide into blocks", "--tensor-type", "attn_q=q1_0", self.odd(), self.out, "q8_0")
        with open(source, "rb") as file:
            data = file.read()
        with open(self.path("cut.gguf"), "wb") as file:
            file.write(data[:len(data) // 2])
        self.fails("cut.gguf", self.path("cut.gguf"), self.out, "q4_0")

    def odd(self):
        wide_model(self.path("odd.gguf"), width=96)
        return self.path("odd.gguf")

    def test_rules_that_concern_no_tensor_are_told_with_the_nearest_names(self):
        wide_model(self.path("in.gguf"))
        with open(self.path("rules"), "w", encoding="utf-8") as rules:
            rules.write("attn_qq=q8_0 attn_q=q8_0")
        errors = run("--tensor-type", "atn_q=q5_k", "--custom-q", r"blk\.[7-9]\.ffn_down=iq4_nl,ffn_down=q6_k", "--tensor-type-file",
                     self.path("rules"), "--ffn-gate-type", "q8_0", "--custom-q", "attn_norm=q8_0", "--dry-run", self.path("in.gguf"), self.out,
                     "q4_k_m").stderr
        for rule, nearest in (("atn_q=q5_k", "blk.0.attn_q.weight"), (r"blk\.[7-9]\.ffn_down=iq4_nl", "blk.0.ffn_down.weight"),
                              ("attn_qq=q8_0", "blk.0.attn_q.weight"), ("ffn_gate=q8_0", "blk.0.ffn_down.weight"), ("attn_norm=q8_0", "")):
            self.assertIn(f"{rule}: no tensor that is quantised has such a name; nearest: {nearest}", errors)
        self.assertEqual(errors.count("no tensor that is quantised"), 5, errors)
        run("--exclude-weights", "attn_k", self.path("in.gguf"), self.out, "q4_0")
        self.assertIn("--exclude-weights attn_k: no tensor", run("--exclude-weights", "attn_k", self.path("in.gguf"), self.out, "q4_0").stderr)
        self.assertIn("a copy changes no weight", run("--tensor-type", "attn_q=q8_0", self.path("in.gguf"), self.out, "COPY").stderr)

    def test_nan_and_infinite_weights_are_named(self):
        for bad in (np.nan, np.inf):
            wide_model(self.path("in.gguf"), bad=bad)
            self.fails("tensor 'blk.1.attn_q.weight': row 3, column 5 is", self.path("in.gguf"), self.out, "q4_k_m")

    def test_a_full_disk_leaves_nothing(self):
        wide_model(self.path("in.gguf"))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        self.fails("File too large", self.path("in.gguf"), self.out, "q8_0", preexec_fn=limit)

    def test_a_small_file_system_is_noticed_and_left_empty(self):
        wide_model(self.path("in.gguf"))
        small = self.path("small")
        os.mkdir(small)
        script = 'mount -t tmpfs -o size=256k none "$1" || exit 77; "$2" "$3" "$1/out.gguf" q8_0; status=$?; echo left:; ls -A "$1"; exit $status'
        done = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", small, TOOL, self.path("in.gguf")],
                              capture_output=True, text=True, check=False)
        if "unshare:" in done.stderr or done.returncode == 77:
            self.skipTest("nothing can be mounted here")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("are free: make room, or choose a smaller type", done.stderr)
        self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("error")]), 1, done.stderr)
        self.assertTrue(done.stdout.endswith("left:\n"), done.stdout)

    def test_an_interruption_leaves_nothing(self):
        wide_model(self.path("in.gguf"), width=1024, layers=4)
        for number in (signal.SIGINT, signal.SIGTERM):
            child = subprocess.Popen([TOOL, "--ignore-imatrix-rules", self.path("in.gguf"), self.out, "iq2_s", "1"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
            while not os.path.exists(self.out + ".part") and child.poll() is None:
                pass
            child.send_signal(number)
            _, errors = child.communicate(timeout=300)
            self.assertEqual(child.returncode, 1)
            self.assertIn("stopped, nothing was kept", errors)
            self.assertEqual(os.listdir(self.folder), ["in.gguf"])


unittest.main()
