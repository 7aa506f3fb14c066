"""Drives llama-gguf-split against the public Python package `gguf`.

usage: llama_gguf_split_test.py LLAMA_GGUF_SPLIT     exit status 77: the package is missing (ctest reports "skipped")
"""
import glob
import os
import resource
import signal
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
MODEL = "tests/data/models/llama-q8_0.gguf"
PARTS = "tests/data/models/split3-00001-of-00003.gguf"


def run(*args, expect=0, **more):
    done = subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=100, check=False, **more)
    assert done.returncode == expect, f"{args}: status {done.returncode}\n{done.stderr}"
    return done


def contents(path):
    reader = gguf.GGUFReader(path)
    return {t.name: (t.tensor_type, tuple(t.shape), t.data.tobytes()) for t in reader.tensors}


def keys(path):
    return {name for name in gguf.GGUFReader(path).fields if not name.startswith("GGUF.")}


class Split(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.prefix = os.path.join(self.folder, "part")

    def parts(self):
        return sorted(glob.glob(self.prefix + "-*.gguf"))

    def test_parts_hold_all_tensors_unchanged_and_merge_to_the_same_bytes(self):
        for options in (["--split-max-tensors", "5"], ["--split-max-size", "1M"], ["--no-tensor-first-split"], []):
            with self.subTest(options=options):
                run(*options, MODEL, self.prefix)
                parts = self.parts()
                joined = {}
                for number, part in enumerate(parts):
                    self.assertTrue(part.endswith(f"-{number + 1:05}-of-{len(parts):05}.gguf"))
                    reader = gguf.GGUFReader(part)
                    self.assertEqual(reader.get_field("split.no").contents(), number)
                    self.assertEqual(reader.get_field("split.count").contents(), len(parts))
                    self.assertEqual(reader.get_field("split.count").types, [gguf.GGUFValueType.UINT16])
                    self.assertEqual(reader.get_field("split.tensors.count").types, [gguf.GGUFValueType.INT32])
                    joined |= contents(part)
                self.assertEqual(joined, contents(MODEL))
                self.assertEqual(keys(parts[0]) - keys(MODEL), {"split.no", "split.count", "split.tensors.count"})
                whole = os.path.join(self.folder, "whole.gguf")
                run("--merge", parts[0], whole)
                with open(whole, "rb") as one, open(MODEL, "rb") as two:
                    self.assertEqual(one.read(), two.read())
                for path in (*parts, whole):
                    os.remove(path)

    def test_bounds_are_kept(self):
        run("--split-max-tensors", "5", MODEL, self.prefix)
        for part in self.parts():
            self.assertLessEqual(len(gguf.GGUFReader(part).tensors), 5)
            os.remove(part)
        run("--split-max-size", "1M", MODEL, self.prefix)
        for part in self.parts():
            self.assertTrue(os.path.getsize(part) <= 10**6 or len(gguf.GGUFReader(part).tensors) == 1, part)
            os.remove(part)
        run("--no-tensor-first-split", "--split-max-tensors", "5", MODEL, self.prefix)
        self.assertEqual(len(gguf.GGUFReader(self.parts()[0]).tensors), 0)

    def test_a_dry_run_writes_nothing_and_names_the_parts(self):
        shown = run("--dry-run", "--split-max-tensors", "5", MODEL, self.prefix).stdout
        self.assertIn("n_split: ", shown)
        self.assertIn("split 00001: n_tensors = 5", shown)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_split_model_is_split_anew_and_merged(self):
        run("--split-max-tensors", "3", PARTS, self.prefix)
        whole = os.path.join(self.folder, "whole.gguf")
        run("--merge", "--delete-splits", self.parts()[0], whole)
        self.assertEqual(os.listdir(self.folder), ["whole.gguf"])
        self.assertFalse(any(name.startswith("split.") for name in keys(whole)))

    def test_mistakes_give_one_clear_error(self):
        whole = os.path.join(self.folder, "whole.gguf")
        second = PARTS.replace("00001-of", "00002-of")
        for args, message in (((MODEL,), "an input and an output are needed"),
                              (("--merge", second, whole), "not the first"),
                              (("--merge", "--split", PARTS, whole), "exclude one another"),
                              (("--merge", PARTS, MODEL), "exists already"),
                              (("--split-max-size", "5", MODEL, self.prefix), "300M or 2G"),
                              (("--split-max-size", "0M", MODEL, self.prefix), "300M or 2G"),
                              (("--split-max-tensors", "0", MODEL, self.prefix), "--split-max-tensors"),
                              (("--delete-splits", MODEL, self.prefix), "goes with --merge"),
                              (("none.gguf", self.prefix), "none.gguf"),
                              ((MODEL, ""), "the name of the output is empty"),
                              (("--merge", PARTS, ""), "the name of the output is empty"),
                              ((MODEL, os.path.join(self.folder, "no", "prefix")), "cannot create"),
                              ((__file__, self.prefix), "not a GGUF")):
            with self.subTest(args=args):
                errors = run(*args, expect=1).stderr
                self.assertIn(message, errors)
                self.assertEqual(os.listdir(self.folder), [])

    def test_a_full_disk_leaves_nothing(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
        errors = run("--split-max-tensors", "9", MODEL, self.prefix, expect=1, preexec_fn=limit).stderr
        self.assertIn("File too large", errors)
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_interruption_leaves_nothing(self):
        big = os.path.join(self.folder, "big.gguf")
        writer = gguf.GGUFWriter(big, "llama")
        for i in range(8):
            writer.add_tensor(f"t{i}", np.zeros((1 << 12, 1 << 12), dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        child = subprocess.Popen([TOOL, "--split-max-tensors", "2", big, self.prefix], stderr=subprocess.PIPE, text=True)
        while not glob.glob(self.prefix + "*.part") and child.poll() is None:
            pass
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=100)
        self.assertEqual(child.returncode, 1)
        self.assertIn("stopped, nothing was kept", errors)
        self.assertEqual(os.listdir(self.folder), ["big.gguf"])


unittest.main()
