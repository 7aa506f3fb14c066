"""Drives the real llama-tokenize over the small vocabularies of tests/data/tokenizers. Standard library only."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
DATA = pathlib.Path("tests/data/tokenizers")
MODEL = str(DATA / "tiny-spm.gguf")


def run(*args, stdin=b"", model=MODEL):
    command = [PROGRAM, *(["-m", model] if model else []), *args]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


def ids(*args, **more):
    done = run("--ids", *args, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Tokenize(unittest.TestCase):
    def test_every_small_vocabulary_gives_its_ids(self):
        for kind in ("bpe", "spm", "wpm"):
            golden = json.loads((DATA / f"tiny-{kind}.json").read_text())["cases"][0]
            model = str(DATA / f"tiny-{kind}.gguf")
            self.assertEqual(ids("-p", golden["text"], "--no-escape", model=model), golden["ids"])
            plain = ids("-p", golden["text"], "--no-escape", "--no-bos", "--no-parse-special", model=model)
            self.assertEqual(plain, golden["ids_without_special"])

    def test_a_line_per_token(self):
        done = run("-p", "the", "--show-count")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.decode().splitlines()
        self.assertEqual(lines[0], "     1 -> '<s>'")
        self.assertRegex(lines[1], r"^ *\d+ -> ' *the'$|^ *\d+ -> ' '$")
        self.assertEqual(lines[-1], f"Total number of tokens: {len(lines) - 1}")

    def test_text_comes_from_argument_file_or_standard_input(self):
        text = "the model\nreads"
        expected = ids("-p", text, "--no-escape")
        with tempfile.NamedTemporaryFile() as file:
            file.write(text.encode())
            file.flush()
            self.assertEqual(ids("-f", file.name, "--no-escape"), expected)
        self.assertEqual(ids("--stdin", "--no-escape", stdin=text.encode()), expected)

    def test_escapes_are_replaced_unless_told_not_to(self):
        self.assertEqual(ids("-p", "a\\nb"), ids("-p", "a\nb"))
        self.assertEqual(ids("--stdin", stdin=b"a\\nb"), ids("-p", "a\nb"))
        self.assertNotEqual(ids("-p", "a\\nb", "--no-escape"), ids("-p", "a\nb"))

    def test_special_tokens_and_bos_can_be_switched_off(self):
        self.assertEqual(ids("-p", "</s>"), [1, 2])
        self.assertEqual(ids("-p", "</s>", "--no-bos"), [2])
        self.assertNotIn(2, ids("-p", "</s>", "--no-parse-special"))

    def test_bytes_that_are_not_utf8_do_not_stop_it(self):
        self.assertEqual(run("--stdin", stdin=b"\xff\xfe\x00\xc3").returncode, 0)

    def test_ten_megabytes_of_one_thing_are_tokenised(self):
        for unit in (b"a", b" ", "😀".encode(), b"\xff", b"\0"):
            done = run("--ids", "--no-bos", "--stdin", stdin=unit * (10_000_000 // len(unit)))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(done.stdout.count(b","), 500_000, unit)

    def test_wrong_use_ends_with_status_1_and_says_why(self):
        for args, word in (
            ([], "nothing to tokenize"),
            (["-p", "a", "--stdin"], "-p"),
            (["-p", "a", "--nope"], "--nope"),
            (["-p"], "-p"),
        ):
            done = run(*args)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn(word, done.stderr.decode())
            self.assertEqual(done.stdout, b"")

    def test_a_missing_or_broken_model_is_named(self):
        done = run("-p", "a", model="no-such-file.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no-such-file.gguf", done.stderr.decode())
        done = run("-p", "a", model=str(DATA / "tiny-spm.json"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("tiny-spm.json", done.stderr.decode())

    def test_log_disable_leaves_standard_error_empty(self):
        done = run("-p", "a", "--ids", "--log-disable")
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main()
