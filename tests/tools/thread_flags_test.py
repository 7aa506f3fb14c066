"""Whether the flags for threads act: what the system says of the threads of running programs. Standard library only.

usage: thread_flags_test.py FOLDER_WITH_THE_PROGRAMS
"""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
MODEL = "tests/data/models/llama.gguf"
CPUS = sorted(os.sched_getaffinity(0))
SCHED_OTHER, SCHED_BATCH = os.SCHED_OTHER, os.SCHED_BATCH


class Running:
    """A llama-cli that waits for its user, with the model loaded and a prompt and an answer behind it."""

    def __init__(self, *flags, prepare=None):
        self.child = subprocess.Popen([FOLDER / "llama-cli", "-m", MODEL, "-c", "256", "-n", "2", "-cnv", *flags], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=prepare)
        self.child.stdin.write(b"the model\n")
        self.child.stdin.flush()
        os.set_blocking(self.child.stdout.fileno(), False)

    def __enter__(self):
        # Both kinds of step have run once the second question is asked for.
        deadline, text = time.monotonic() + 60, b""
        while text.count(b"> ") < 2 and time.monotonic() < deadline and self.child.poll() is None:
            text += self.child.stdout.read() or b""
            time.sleep(0.02)
        if text.count(b"> ") < 2:
            self.child.kill()
            raise AssertionError(f"no second question\n{text}\n{self.child.stderr.read().decode()}")
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait(timeout=60)
        self.errors = self.child.stderr.read().decode()
        self.child.stdout.close()
        self.child.stderr.close()

    def workers(self):
        """(name, CPUs, policy) of the main thread and of the pools' threads, in the order of their start."""
        found = []
        for task in sorted(pathlib.Path(f"/proc/{self.child.pid}/task").iterdir(), key=lambda path: int(path.name)):
            name = (task / "comm").read_text().strip()
            if int(task.name) == self.child.pid or name.startswith("ggml-cpu-"):
                found.append((name, sorted(os.sched_getaffinity(int(task.name))), os.sched_getscheduler(int(task.name))))
        return found


def mask(*cpus):
    return hex(sum(1 << cpu for cpu in cpus))


class Threads(unittest.TestCase):
    def names(self, *flags):
        with Running(*flags) as program:
            return [name for name, *_ in program.workers()]

    def test_counts(self):
        self.assertEqual(self.names("-t", "1"), ["llama-cli"])
        self.assertEqual(self.names("-t", "3"), ["llama-cli", "ggml-cpu-1", "ggml-cpu-2"])
        self.assertEqual(self.names("-t", "1", "-tb", "3"), ["llama-cli", "ggml-cpu-1", "ggml-cpu-2"])
        self.assertEqual(len(self.names("-t", "0")), os.cpu_count())

    def test_a_mask_holds_for_all_threads(self):
        last = CPUS[-1]
        for flags in (("-C", mask(last)), ("-Cr", f"{last}-{last}")):
            with Running("-t", "2", *flags) as program:
                self.assertEqual([cpus for _, cpus, _ in program.workers()], [[last]] * 2)
            self.assertIn("2 threads for generation share 1 CPUs", program.errors)
        with Running("-t", "2", "-C", mask(*CPUS)) as program:
            self.assertEqual([cpus for _, cpus, _ in program.workers()], [CPUS] * 2)

    def test_without_a_count_a_mask_says_how_many(self):
        self.assertEqual(self.names("-C", mask(CPUS[0])), ["llama-cli"])

    def test_strict_is_one_cpu_a_thread(self):
        with Running("-t", "3", "-C", mask(*CPUS), "--cpu-strict", "1") as program:
            self.assertEqual([cpus for _, cpus, _ in program.workers()], [[CPUS[i % len(CPUS)]] for i in range(3)])

    def test_prompts_may_have_threads_of_their_own(self):
        with Running("-t", "2", "-tb", "3", "-Cb", mask(CPUS[-1]), "--poll-batch", "0", "--prio-batch", "-1") as program:
            first, *workers = program.workers()
        self.assertEqual([(name, cpus, policy) for name, cpus, policy in workers],
                         [("ggml-cpu-1", CPUS, SCHED_OTHER), ("ggml-cpu-1", [CPUS[-1]], SCHED_BATCH), ("ggml-cpu-2", [CPUS[-1]], SCHED_BATCH)])
        self.assertEqual(first[1:], (CPUS, SCHED_OTHER))  # generation was the last that it did
        with Running("-t", "2", "-tb", "2", "-Crb", f"{CPUS[0]}-{CPUS[-1]}", "--cpu-strict-batch", "1") as program:
            self.assertEqual([cpus for _, cpus, _ in program.workers()[1:]], [CPUS, [CPUS[1 % len(CPUS)]]])

    def test_priorities(self):
        with Running("-t", "2", "--prio", "-1") as program:
            self.assertEqual([policy for *_, policy in program.workers()], [SCHED_BATCH] * 2)
        with Running("-t", "2", "--prio", "2") as program:
            policies = {policy for *_, policy in program.workers()}
        self.assertEqual(len(policies), 1)
        if policies == {SCHED_OTHER}:
            self.assertIn("thread priority 2: the system refuses it", program.errors)
        else:
            self.assertEqual(policies, {os.SCHED_RR})

    def test_memory_follows_the_policy_that_the_process_was_given(self):
        """Interleaving is numactl's: nothing here may set another policy."""
        library = ctypes.CDLL(None, use_errno=True)
        set_mempolicy, interleave = 238, 3  # x86-64

        def dealt_out():
            node = ctypes.c_ulong(1)
            if library.syscall(set_mempolicy, interleave, ctypes.byref(node), 64) != 0:
                os._exit(99)

        if os.uname().machine != "x86_64" or not os.path.exists("/proc/self/numa_maps"):
            self.skipTest("no view of memory policies")
        if subprocess.run(["true"], preexec_fn=dealt_out, check=False).returncode != 0:
            self.skipTest("this system refuses memory policies")
        with Running("-t", "2", "--no-mmap", prepare=dealt_out) as program:
            maps = pathlib.Path(f"/proc/{program.child.pid}/numa_maps").read_text()
        pages = {}
        for line in maps.splitlines():
            if (found := re.search(r"^\w+ (\S+) .*anon=(\d+)", line)):
                pages[found.group(1)] = pages.get(found.group(1), 0) + int(found.group(2))
        self.assertEqual(set(pages), {"interleave:0"})
        self.assertGreater(pages["interleave:0"], 100)


class Refusals(unittest.TestCase):
    def fails(self, *flags):
        done = subprocess.run([FOLDER / "llama-cli", "-m", MODEL, "-no-cnv", "-p", "x", "-n", "1", *flags], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_what_cannot_be_is_refused_with_a_reason(self):
        absent = max(os.sched_getaffinity(1) | set(CPUS)) + 1
        self.assertIn(f"this process may not run on core {absent}", self.fails("-C", mask(absent)))
        self.assertIn(f"this process may not run on core {absent}", self.fails("-Crb", f"{absent}-{absent}"))
        for flags in (("-C", "0"), ("-C", "0xg"), ("-Cr", "3-1"), ("-Cr", "x"), ("--cpu-strict", "2"), ("--prio", "4"), ("--prio", "-2"),
                      ("--poll", "101"), ("--poll-batch", "-1"), ("--prio-batch", "many"), ("-Cb", "")):
            with self.subTest(flags=flags):
                self.assertIn(f'error while handling argument "{flags[0]}"', self.fails(*flags))


if __name__ == "__main__":
    unittest.main()
