"""Drives the real llama-cli over a tiny model of tests/data/models, whose text is noise. Standard library only."""

import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, "tests/support")
from gguf_file import without_character  # noqa: E402

PROGRAM = sys.argv.pop(1)
MODEL = "tests/data/models/llama.gguf"
COMMON = ("-m", MODEL, "-t", "1", "--temp", "0", "--ignore-eos", "-c", "256", "--no-warmup")


def run(*args, stdin=b""):
    return subprocess.run([PROGRAM, *COMMON, *args], input=stdin, capture_output=True, timeout=100, check=False)


def complete(*args, stdin=b""):
    done = run("-no-cnv", "--no-display-prompt", *args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done


def generated(done):
    """Tokens that were generated, one of them in the step of the prompt."""
    return int(re.search(rb"  eval time = .*/ *(\d+) runs", done.stderr).group(1)) + 1


class Completion(unittest.TestCase):
    def test_the_prompt_stands_in_front_unless_it_is_switched_off(self):
        answer = complete("-p", "the model", "-n", "8").stdout
        self.assertTrue(answer.strip())
        self.assertEqual(run("-no-cnv", "-p", "the model", "-n", "8").stdout, b"the model" + answer)

    def test_a_reverse_prompt_ends_the_answer_wherever_a_token_ends(self):
        answer = complete("-p", "the model", "-n", "40").stdout.decode(errors="ignore")
        word = re.search(r"[ -~]{2}", answer).group(0)
        cut = complete("-p", "the model", "-n", "40", "-r", "not there", "-r", word).stdout.decode(errors="ignore")
        self.assertIn(word, cut)
        self.assertLess(len(cut), len(answer))
        self.assertTrue(answer.startswith(cut.rstrip("\n")))

    def test_a_full_context_ends_the_text_or_is_shifted(self):
        self.assertLess(generated(complete("-p", "the model", "-n", "400")), 257)
        self.assertLess(generated(complete("-p", "the model", "-n", "-2", "--context-shift")), 257)
        for keep in ("0", "2", "-1"):
            done = complete("-p", "the model", "-n", "400", "--context-shift", "--keep", keep)
            self.assertEqual(generated(done), 400)

    def test_interactive_input_continues_the_text(self):
        first = complete("-p", "the model", "-n", "6").stdout.rstrip(b"\n")
        done = complete("-p", "the model", "-n", "6", "-i", "--in-prefix", "<in>", "--in-suffix", "<out>",
                        "--verbose-prompt", stdin=b"and the\n")
        self.assertTrue(done.stdout.startswith(first + b"<in><out>"), done.stdout)
        counts = [int(n) for n in re.findall(rb"number of tokens in prompt = (\d+)", done.stderr)]
        self.assertEqual(len(counts), 2)
        self.assertGreater(counts[1], counts[0] + 6)
        self.assertEqual(generated(done), 12 - 1)  # each turn has one in the step of its prompt

    def test_interactive_first_waits_for_input_even_without_a_prompt(self):
        self.assertEqual(complete("-if", "-n", "4").stdout, b"\n")
        self.assertGreater(len(complete("-if", "-n", "4", stdin=b"the model\n").stdout), 2)

    def test_verbose_prompt_lists_the_tokens(self):
        done = complete("-p", "the", "-n", "1", "--verbose-prompt")
        self.assertRegex(done.stderr, rb"number of tokens in prompt = 3\n *280 -> '<\|bos\|>'\n *\d+ -> 't'\n *\d+ -> 'he'\n")

    def test_a_system_prompt_without_a_chat_is_named_as_unused(self):
        self.assertIn(b"-sys is not used", complete("-p", "the", "-n", "1", "-sys", "x").stderr)

    def test_an_empty_prompt_is_an_error(self):
        done = run("-no-cnv", "-n", "1", "--override-kv", "tokenizer.ggml.add_bos_token=bool:false")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the prompt is empty", done.stderr)


class Colours(unittest.TestCase):
    def output(self, *args, stdout_is_terminal):
        """What the program writes to standard output while the other stream is a pipe or a terminal."""
        leader, follower = pty.openpty()
        command = [PROGRAM, *COMMON, "-no-cnv", "-p", "the model", "-n", "4", *args]
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        if stdout_is_terminal:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=follower, stderr=subprocess.DEVNULL, env=environment,
                                  timeout=100, check=True)
            text = os.read(leader, 1 << 16)
        else:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower, env=environment,
                                  timeout=100, check=True)
            text = done.stdout
        os.close(leader)
        os.close(follower)
        return text

    def test_colours_are_for_a_terminal_on_standard_output(self):
        self.assertIn(b"\033[", self.output(stdout_is_terminal=True))
        self.assertNotIn(b"\033[", self.output(stdout_is_terminal=False))
        self.assertNotIn(b"\033[", self.output("--simple-io", stdout_is_terminal=True))
        self.assertIn(b"\033[", self.output("--color", "on", stdout_is_terminal=False))


class Grammar(unittest.TestCase):
    def test_an_answer_follows_a_grammar_or_a_schema(self):
        grammar = 'root ::= ("yes" | "no") "!"'
        self.assertIn(complete("-p", "the model", "-n", "20", "--grammar", grammar).stdout.strip(), (b"yes!", b"no!"))
        schema = '{"type": "integer", "minimum": 30, "maximum": 39}'
        self.assertRegex(complete("-p", "the model", "-n", "20", "-j", schema).stdout.strip(), rb"^3[0-9]$")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "schema.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"const": [1, null]}')
            done = complete("-p", "the model", "-n", "20", "--grammar", grammar, "-jf", path)
            self.assertEqual(done.stdout.strip(), b"[1,null]")

    def test_what_is_wrong_with_it_is_named_with_its_place(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        paths = {name: os.path.join(folder.name, name) for name in ("x.gbnf", "x.json")}
        for path, text in zip(paths.values(), ("xx", '{"items": {"type": "widget"}}')):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        for arguments, place in [(("--grammar", "root ::= (\"a\""), b"error: --grammar: grammar: line 1, column 10"),
                                 (("--grammar-file", paths["x.gbnf"]), f"error: --grammar-file {paths['x.gbnf']}: grammar: line 1".encode()),
                                 (("-j", '{"items": {"type": "widget"}}'), b"error: -j: json_schema: #/items/type"),
                                 (("-jf", paths["x.json"]), f"error: -jf {paths['x.json']}: json_schema: #/items/type".encode()),
                                 (("-j", "{"), b'"-j": the schema is not valid JSON: line 1, column 2'),
                                 (("--grammar-file", "not/there"), b"not/there")]:
            done = run("-no-cnv", "-p", "the", "-n", "2", *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertIn(place, done.stderr)


class OddText(unittest.TestCase):
    def test_a_text_that_no_token_stands_for_is_refused_before_it_is_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            model = without_character(pathlib.Path("tests/data/models/qwen2.gguf"), pathlib.Path(folder, "qwen2.gguf"), "~")
            template = ("--jinja", "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}")
            for mode, said in ((("-no-cnv",), b"the vocabulary of the model has no token for the prompt"), (("-st", *template), b"the prompt has no tokens")):
                done = run("-m", str(model), *mode, "-p", "~~", "-n", "2")
                self.assertEqual((done.returncode, done.stdout), (1, b""))
                self.assertIn(b"error: " + said, done.stderr)
            done = run("-m", str(model), "-cnv", *template, "-n", "2", stdin=b"~~\nab\n")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count(b"error: the prompt has no tokens"), 1)

    def prompt_file(self, content):
        file = tempfile.NamedTemporaryFile()
        self.addCleanup(file.close)
        file.write(content)
        file.flush()
        return file.name

    def test_ten_megabytes_are_too_much_for_the_context_and_nothing_else(self):
        path = self.prompt_file(b"word " * 2_000_000)
        for mode in ("-no-cnv", "-st"):
            done = run(mode, "-n", "1", "-f", path)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rb"error: the prompt has 10\d{6} tokens, the context holds 256: use a larger -c")
            self.assertEqual(done.stdout, b"")

    def test_bytes_that_are_no_text_are_only_bytes(self):
        odd = b"a\xff\xfe\x00\xc3(\xed\xa0\x80 \xf4\x90\x80\x80"
        for mode in ("-no-cnv", "-st"):
            self.assertEqual(run(mode, "-n", "2", "-f", self.prompt_file(odd)).returncode, 0)
        breaker = ("--dry-multiplier", "1", "--dry-sequence-breaker", b"\xff\xfe", "-r", b"\xff")
        self.assertEqual(run("-no-cnv", "-n", "2", "-p", b"a\xffb\xc3", *breaker).returncode, 0)


class Chat(unittest.TestCase):
    def test_a_long_chat_fails_when_it_is_full_or_drops_its_oldest_turns(self):
        lines = b"the model\n" * 6
        self.assertIn(b"use a larger -c", run("-n", "40", stdin=lines).stderr)
        done = run("-n", "40", "--context-shift", "-sys", "the", stdin=lines)
        self.assertEqual(done.returncode, 0)
        self.assertNotIn(b"use a larger -c", done.stderr)

    def test_one_generator_serves_the_conversation(self):
        # So hot that the model hardly counts: equal numbers would choose equal tokens.
        hot = ("--samplers", "temperature", "--temp", "1000", "--seed", "7", "-n", "12", "--simple-io", "--no-display-prompt")
        done = run(*hot, stdin=b"the model\nthe model\n")
        first, second = re.split(rb"\n\n", done.stdout.replace(b"> ", b""))[:2]
        self.assertNotEqual(first, second)
        self.assertEqual(run(*hot, stdin=b"the model\nthe model\n").stdout, done.stdout)
        self.assertIn(first, run(*hot, stdin=b"the model\n").stdout)

    def test_a_ctrl_c_where_a_message_is_awaited_ends_with_130(self):
        chat = subprocess.Popen([PROGRAM, *COMMON, "-n", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with chat:
            while chat.stdout.read(1) != b">":  # the prompt
                self.assertIsNone(chat.poll())
            time.sleep(0.5)
            chat.send_signal(signal.SIGINT)
            self.assertEqual(chat.wait(60), 130)

    def test_simple_io_leaves_out_the_note(self):
        self.assertIn(b"/exit", run("-n", "4").stderr)
        self.assertNotIn(b"/exit", run("-n", "4", "--simple-io").stderr)


if __name__ == "__main__":
    unittest.main()
