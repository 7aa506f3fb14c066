"""The last step of scripts/quickstart.sh: a server on 127.0.0.1 and a curl line that works. Needs the model that scripts/get-model.sh smollm2
fetches, and curl; standard library only.

usage: quickstart_test.py BUILD_FOLDER
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest

BUILD = sys.argv.pop(1)
MODEL = pathlib.Path("models/SmolLM2-135M-Instruct.Q4_1.gguf")
SKIPPED = 77


def free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def any_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Quickstart(unittest.TestCase):
    def start(self, *args):
        script = subprocess.Popen(["scripts/quickstart.sh", "--no-build", *args], env={**os.environ, "BUILD": BUILD}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(script.stdout.close)
        self.addCleanup(lambda: script.poll() is None and (script.terminate(), script.wait(60)))
        return script

    def test_the_printed_command_is_answered_with_paris_streamed_and_not(self):
        port = 8080 if free(8080) else any_port()
        script = self.start(*([] if port == 8080 else ["--port", str(port)]))
        command = next((line.strip() for line in script.stdout if line.strip().startswith("curl ")), "")
        self.assertTrue(command.startswith(f"curl http://127.0.0.1:{port}/v1/chat/completions "), command)

        answer = json.loads(subprocess.run(command + " -sS", shell=True, capture_output=True, timeout=120, check=True).stdout)
        text = answer["choices"][0]["message"]["content"]
        self.assertIn("Paris", text)

        streamed = command.replace("-d '{", "-d '{\"stream\":true,") + " -sSN"
        self.assertNotEqual(streamed, command + " -sSN")
        events = subprocess.run(streamed, shell=True, capture_output=True, timeout=120, check=True).stdout.decode()
        data = re.findall(r"^data: (.*)$", events, re.MULTILINE)
        self.assertEqual(data.pop(), "[DONE]")
        parts = [choice["delta"].get("content") or "" for event in data for choice in json.loads(event)["choices"]]
        self.assertGreater(len(parts), 3)
        self.assertEqual("".join(parts), text)

        script.send_signal(signal.SIGINT)  # Ctrl-C: the server ends with the script
        self.assertEqual(script.wait(60), 0)
        self.assertTrue(free(port))

    def test_a_port_that_is_taken_is_told_before_anything_is_done(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = str(other.getsockname()[1])
            done = subprocess.run(["scripts/quickstart.sh", "--no-build", "--port", port], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"port {port}", done.stderr)
        self.assertIn("--port", done.stderr)


if __name__ == "__main__":
    if not MODEL.exists() or shutil.which("curl") is None:
        print(f"skipped: {MODEL} was not fetched (scripts/get-model.sh smollm2), or there is no curl")
        sys.exit(SKIPPED)
    unittest.main()
