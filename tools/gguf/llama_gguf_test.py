"""Drives llama-gguf against the public Python package `gguf`: what it writes must load there, what that writes must show here.

usage: llama_gguf_test.py LLAMA_GGUF     exit status 77: the package is missing (ctest reports "skipped")

With $TANDEM_SHARED (or ../shared) the plan of each preset is also compared with shared/tools/synth_gguf.py.
"""
import contextlib
import importlib.util
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

try:
    import gguf
    import numpy as np
except ImportError:
    print("the Python packages gguf and numpy are not installed")
    sys.exit(77)

TOOL = os.path.abspath(sys.argv.pop(1))
SHARED = os.path.abspath(os.environ.get("TANDEM_SHARED", "../shared"))
SCRIPT = os.path.join(SHARED, "tools", "synth_gguf.py")
MIXES = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k_m", "q5_k_m", "q6_k"]
REFUSED_PRESETS = ["gpt-oss-20b", "gpt-oss-120b"]  # their experts are MXFP4


def run(*args, expect=0):
    done = subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, f"{args}: status {done.returncode}\n{done.stderr}"
    return done


def report(path):
    return json.loads(run("--json", path).stdout)


class Synth(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name="m.gguf"):
        return os.path.join(self.folder.name, name)

    def synth(self, *args, name="m.gguf"):
        run("synth", *args, "-o", self.path(name))
        return gguf.GGUFReader(self.path(name))

    def test_every_mix_loads_with_finite_values_of_the_spread_that_keeps_logits_finite(self):
        for mix in MIXES:
            with self.subTest(mix=mix):
                reader = self.synth("--preset", "qwen3-30b-a3b", "--layers", "1", "--experts", "2", "--vocab", "300", "--mix", mix)
                for tensor in reader.tensors:
                    values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
                    self.assertTrue(np.isfinite(values).all(), tensor.name)
                    row = int(tensor.shape[0])
                    if "norm" in tensor.name:
                        self.assertTrue((values == 1).all(), tensor.name)
                        continue
                    wanted = 1.0 if tensor.name == "token_embd.weight" else (1.5 if "gate_inp" in tensor.name else 0.7) / math.sqrt(row)
                    spread = math.sqrt(np.mean(values**2))
                    self.assertLess(abs(spread / wanted - 1), 0.03, f"{tensor.name} {tensor.tensor_type.name} {spread} {wanted}")
                    self.assertLess(abs(values.mean()), 0.02 * wanted + 4 * wanted / math.sqrt(values.size), tensor.name)

    def test_report_agrees_with_the_python_reader(self):
        reader = self.synth("--preset", "llama3-8b", "--layers", "1", "--vocab", "300")
        shown = report(self.path())
        self.assertEqual(len(shown["tensors"]), len(reader.tensors))
        for ours, theirs in zip(shown["tensors"], reader.tensors):
            self.assertEqual(ours["name"], theirs.name)
            self.assertEqual(ours["type"], theirs.tensor_type.name)
            self.assertEqual(ours["shape"], [int(n) for n in theirs.shape])
            self.assertEqual(ours["bytes"], theirs.n_bytes)
            self.assertEqual(ours["offset"], theirs.data_offset)
        fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        self.assertEqual(list(shown["metadata"]), list(fields))
        for key, field in fields.items():
            ours, theirs = shown["metadata"][key]["value"], field.contents()
            if isinstance(theirs, float):
                self.assertEqual(np.float32(ours), np.float32(theirs), key)
            else:
                self.assertEqual(ours, theirs, key)

    def test_equal_seeds_give_equal_files_and_others_do_not(self):
        size = ["--preset", "qwen3-0.6b", "--layers", "1", "--vocab", "300"]
        content = []
        for seed in ("1", "1", "2"):
            self.synth(*size, "--seed", seed)
            with open(self.path(), "rb") as file:
                content.append(file.read())
        self.assertEqual(content[0], content[1])
        self.assertNotEqual(content[0], content[2])

    def test_sparse_files_have_the_size_and_header_of_full_ones_and_no_data(self):
        size = ["--preset", "qwen3-0.6b", "--layers", "1", "--vocab", "300"]
        self.synth(*size, name="full.gguf")
        self.synth(*size, "--sparse", name="sparse.gguf")
        full, sparse = report(self.path("full.gguf")), report(self.path("sparse.gguf"))
        self.assertEqual(full["tensors"], sparse["tensors"])
        self.assertEqual(full["files"][0]["bytes"], sparse["files"][0]["bytes"])
        self.assertLess(os.stat(self.path("sparse.gguf")).st_blocks * 512, 1 << 20)

    def test_router_skew_makes_rows_of_different_size(self):
        reader = self.synth("--preset", "qwen3-30b-a3b", "--layers", "1", "--vocab", "300", "--experts", "16", "--router-skew", "1")
        router = next(t for t in reader.tensors if t.name == "blk.0.ffn_gate_inp.weight")
        sizes = np.sort(np.linalg.norm(router.data, axis=1))
        self.assertGreater(sizes[-1], 10 * sizes[0])

    def test_what_cannot_be_written_is_refused_with_the_reason(self):
        cases = [
            (["--preset", "qwen3-30b-a3"], 'did you mean "qwen3-30b-a3b"'),
            (["--preset", "qwen3-8b", "--mix", "q4_k"], 'did you mean "q4_k_m"'),
            (["--preset", "qwen3-8b", "--layrs", "3"], "Did you mean --layers?"),
            (["--preset", "qwen3-8b", "--layers", "x"], "--layers"),
            (["--preset", "qwen3-8b", "--experts", "4"], "no experts"),
            (["--preset", "qwen3-8b", "--vocab", "10"], "from 259"),
            (["--preset", "deepseek-v3", "--experts", "12"], "must be a multiple of 8"),
        ]
        for args, words in cases:
            with self.subTest(args=args):
                self.assertIn(words, run("synth", *args, "-o", self.path(), expect=1).stderr)
        for args in (["--preset", "foo"], ["--preset", "qwen3-8b", "--mix", "nonsense"]):
            self.assertNotIn("did you mean", run("synth", *args, "-o", self.path(), expect=1).stderr)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_a_full_disk_is_one_error_and_leaves_no_file(self):
        command = f"ulimit -f 1000; exec {TOOL} synth --preset qwen3-0.6b --layers 1 -o {self.path()}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
        self.assertIn("cannot write: File too large", done.stderr)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_a_folder_without_leave_to_write_is_one_error_that_names_the_file(self):
        # Root is stopped by no mode, unless it gives that power up.
        powerless = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []
        if powerless and (shutil.which("setpriv") is None or subprocess.run([*powerless, "true"], capture_output=True).returncode):
            self.skipTest("root may write everywhere")
        os.chmod(self.folder.name, 0o555)
        self.addCleanup(os.chmod, self.folder.name, 0o755)
        command = [*powerless, TOOL, "synth", "--preset", "qwen3-0.6b", "--layers", "1", "--vocab", "300", "-o", self.path()]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("error: ")), (1, 1), done.stderr)
        self.assertIn(self.path(), done.stderr)
        self.assertIn("Permission denied", done.stderr)
        self.assertEqual(os.listdir(self.folder.name), [])


class Inspect(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "python.gguf")

    def test_files_of_the_python_writer_show_the_same_values(self):
        writer = gguf.GGUFWriter(self.path, "llama")
        values = {}

        def add(put, key, value):
            put(key, value)
            values[key] = value

        add(writer.add_uint8, "k.u8", 255)
        add(writer.add_int8, "k.i8", -128)
        add(writer.add_uint16, "k.u16", 65535)
        add(writer.add_int16, "k.i16", -32768)
        add(writer.add_uint32, "k.u32", 2**32 - 1)
        add(writer.add_int32, "k.i32", -(2**31))
        add(writer.add_uint64, "k.u64", 2**64 - 1)
        add(writer.add_int64, "k.i64", -(2**63))
        add(writer.add_float32, "k.f32", 0.5)
        add(writer.add_float64, "k.f64", 1e-300)
        add(writer.add_bool, "k.bool", True)
        add(writer.add_string, "k.string", "Grüße\n\t\"quoted\"")
        add(writer.add_array, "k.strings", ["a", "", "ü"])
        add(writer.add_array, "k.i32s", [1, -2, 3])
        add(writer.add_array, "k.f32s", [0.25, -1.5])
        add(writer.add_array, "k.bools", [True, False])
        writer.add_tensor("t", np.arange(12, dtype=np.float32).reshape(3, 4))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        shown = report(self.path)
        for key, value in values.items():
            self.assertEqual(shown["metadata"][key]["value"], value, key)
        self.assertEqual(shown["tensors"][0]["shape"], [4, 3])
        text = run(self.path).stdout
        self.assertIn("4 x 3", text)
        self.assertIn('\\n\\t"quoted"', text)

    def test_errors_name_the_file_the_byte_and_the_cause(self):
        with open(self.path, "wb") as file:
            file.write(b"GGUF\x07\0\0\0" + bytes(16))
        error = run(self.path, expect=1).stderr
        self.assertIn(f"{self.path}: byte 4: GGUF version 7 is not supported", error)
        self.assertIn("Did you mean --json?", run("--jsn", self.path, expect=1).stderr)

    def test_options_of_programs_that_run_models_are_not_known(self):
        for args in (["-c", "5", self.path], ["synth", "--port", "80"], ["--preset", "x"], [self.path, "--json=1"]):
            self.assertIn("error: invalid argument: ", run(*args, expect=1).stderr)

    def test_missing_words_are_named(self):
        self.assertIn("error: no file is given", run(expect=1).stderr)
        self.assertIn("error: --preset is missing", run("synth", expect=1).stderr)
        self.assertIn("error: -o FNAME is missing", run("synth", "--preset", "qwen3-8b", expect=1).stderr)
        error = run("no-such-file.gguf", expect=1).stderr
        self.assertRegex(error, r"^error: .*no-such-file.gguf")
        self.assertEqual(error.count("\n"), 1)

    def test_version_and_completion(self):
        for form in ([], ["synth"]):
            self.assertRegex(run(*form, "--version").stderr, r"^version: ")
            self.assertIn("-F _llama_gguf llama-gguf", run(*form, "--completion-bash").stdout)

    def test_list_names_mixes_and_presets(self):
        text = run("synth", "--list", "--mix", "q8_0").stdout
        for word in ("q4_k_m", "qwen3-30b-a3b", "GiB q8_0"):
            self.assertIn(word, text)

    def test_help_is_complete(self):
        self.assertIn("--full", run("--help").stdout)
        text = run("synth", "--help").stdout
        for option in ("--preset", "--mix", "--list", "--layers", "--experts", "--vocab", "--seed", "--router-skew", "--sparse", "--output"):
            self.assertIn(option, text)


@unittest.skipUnless(os.path.exists(SCRIPT), "no shared folder")
class SameAsScript(unittest.TestCase):
    """Names, types and shapes of every tensor, and every key, as synth_gguf.py writes them."""

    @classmethod
    def setUpClass(cls):
        spec = importlib.util.spec_from_file_location("synth_gguf", SCRIPT)
        cls.script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.script)

    def compare(self, preset, mix, *size):
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = os.path.join(folder, "script.gguf"), os.path.join(folder, "ours.gguf")
            with mock.patch("sys.argv", ["synth_gguf.py", "--preset", preset, "--mix", mix, *size, "--sparse", "--out", theirs]):
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    self.script.main()
            run("synth", "--preset", preset, "--mix", mix, *size, "--sparse", "-o", ours)
            a, b = report(theirs), report(ours)
        self.assertEqual([(t["name"], t["type"], t["shape"]) for t in a["tensors"]],
                         [(t["name"], t["type"], t["shape"]) for t in b["tensors"]])
        self.assertEqual(a["metadata"], b["metadata"])
        self.assertEqual(list(a["metadata"]), list(b["metadata"]))

    def test_all_presets_with_all_layers(self):
        for preset in self.script.PRESETS:
            if preset not in REFUSED_PRESETS:
                with self.subTest(preset=preset):
                    self.compare(preset, "q4_k_m", "--vocab", "1000")

    def test_all_mixes_that_our_types_allow(self):
        for mix in MIXES:
            for preset in ("qwen3-30b-a3b", "deepseek-v2-lite"):
                with self.subTest(mix=mix, preset=preset):
                    self.compare(preset, mix, "--layers", "3", "--vocab", "300")

    def test_cut_models(self):
        self.compare("qwen3-30b-a3b", "q4_k_m", "--layers", "2")
        self.compare("deepseek-v3", "q4_k_m", "--layers", "2", "--experts", "32")
        self.compare("glm-4.5-air", "q8_0", "--layers", "1", "--experts", "4", "--vocab", "259")
        self.compare("qwen3-next-80b-a3b", "q4_0", "--layers", "3")


if __name__ == "__main__":
    unittest.main(verbosity=2)
