"""All scripts of the tree say what they are for, and refuse what they do not know before they do anything. Standard library only.

usage: scripts_test.py
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCED = {"usage.sh"}
MISTAKE = 2
WRAPPERS = {"disable-numa-balancing.sh": 125, "numactl-bind-socket.sh": 125}  # 1 to 124 are the wrapped command's
TOOLS = ("apt-get", "cmake", "ctest", "ninja", "git", "pip", "curl", "clang-format-14", "clang-tidy-14")


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.used = pathlib.Path(folder.name, "used")
        for tool in TOOLS:
            path = pathlib.Path(folder.name, tool)
            path.write_text(f'#!/bin/sh\necho {tool} >> "{self.used}"\nexit 99\n')
            path.chmod(0o755)
        self.environment = {**os.environ, "PATH": folder.name + ":" + os.environ["PATH"]}
        self.scripts = sorted(p for p in pathlib.Path("scripts").iterdir() if p.suffix in (".sh", ".py") and p.name not in SOURCED)

    def run_script(self, path, *args):
        command = ["python3", str(path)] if path.suffix == ".py" else ["bash", str(path)]
        done = subprocess.run([*command, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=self.environment, timeout=60, check=False)
        self.assertFalse(self.used.exists(), f"{path} {args} has begun: {done.stdout}{done.stderr}")
        return done

    def test_help_shows_the_use_and_nothing_else_happens(self):
        self.assertGreater(len(self.scripts), 15)
        for path in self.scripts:
            for flag in ("--help", "-h"):
                with self.subTest(path=path.name, flag=flag):
                    done = self.run_script(path, flag)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn(path.name.replace("check_style.py", "check-style.sh"), done.stdout)
                    self.assertNotIn("set -", done.stdout)

    def test_what_is_unknown_is_named_and_refused(self):
        for path in self.scripts:
            with self.subTest(path=path.name):
                done = self.run_script(path, "--no-such-option")
                self.assertEqual((done.returncode, done.stdout), (WRAPPERS.get(path.name, MISTAKE), ""), done.stderr)
                self.assertRegex(done.stderr, "--no-such-option|required")


if __name__ == "__main__":
    unittest.main()
