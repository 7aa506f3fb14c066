"""Starts and stops llama-server for the tests."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

try:
    import httpx
except ImportError:  # scripts/soak.py starts a server too, on machines that have only the standard library
    httpx = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build" / "bin"))
TINY_MODEL = ROOT / "tests" / "data" / "models" / "llama.gguf"
START_SECONDS = 60


class Server:
    """A running llama-server on a port of its own choosing."""

    def __init__(self, *flags, model=TINY_MODEL, env=None):
        self.log_file = tempfile.NamedTemporaryFile("w+", prefix="llama-server-", suffix=".log", delete=False)
        command = [str(BIN / "llama-server"), "-m", str(model), "--port", "0", "--host", "127.0.0.1", *map(str, flags)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=self.log_file,
                                        env={**os.environ, **(env or {})})
        self.url = None
        self.prefix = flags[flags.index("--api-prefix") + 1] if "--api-prefix" in flags else ""

    def log(self):
        return pathlib.Path(self.log_file.name).read_text(errors="replace")

    def wait(self):
        deadline = time.time() + START_SECONDS
        while time.time() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"llama-server ended with {self.process.returncode}:\n{self.log()}")
            if self.url is None:
                match = re.search(r"listening on (http://\S+?),? ", self.log() + " ")
                if match:
                    self.url = match.group(1).rstrip(",")
            if self.url is not None:
                with contextlib.suppress(OSError):  # urllib's errors are of this kind, a 503 included
                    with urllib.request.urlopen(self.url + self.prefix + "/health", timeout=5):
                        return self
            time.sleep(0.02)
        raise RuntimeError(f"llama-server was not ready within {START_SECONDS} s:\n{self.log()}")

    def stop(self, seconds=60):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode

    def memory_kib(self, field):
        """A line of /proc/PID/status: VmRSS (resident now), VmHWM (its peak), RssFile (of it: pages of files)."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+)", status).group(1))

    def rss_kib(self):
        return self.memory_kib("VmRSS")

    def sanitized(self):
        """A sanitizer reserves terabytes of address space, and multiplies the memory in use by its shadow."""
        return self.memory_kib("VmSize") > 1 << 30

    # Requests.
    def get(self, path, **kwargs):
        return httpx.get(self.url + path, timeout=60, **kwargs)

    def post(self, path, body=None, **kwargs):
        return httpx.post(self.url + path, json=body, timeout=120, **kwargs)

    def events(self, path, body):
        """The data of a stream's events, as JSON but for [DONE]."""
        with httpx.stream("POST", self.url + path, json=body, timeout=120) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                if line.startswith("data: "):
                    data = line[len("data: "):]
                    yield data if data == "[DONE]" else json.loads(data)

    def busy_slots(self):
        return sum(slot["is_processing"] for slot in self.get("/slots").json())

    def wait_until_idle(self, seconds=10):
        deadline = time.time() + seconds
        while time.time() < deadline:
            if self.busy_slots() == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"a slot is still busy after {seconds} s")


@contextlib.contextmanager
def running(*flags, **kwargs):
    server = Server(*flags, **kwargs)
    try:
        yield server.wait()
    finally:
        server.stop()
