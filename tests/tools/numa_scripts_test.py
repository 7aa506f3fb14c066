"""The scripts for machines with several memory nodes, on invented machines: folders in the place of /sys and /proc, and a
numactl that writes down its arguments. Standard library only.

usage: numa_scripts_test.py
"""

import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

BALANCING = "scripts/disable-numa-balancing.sh"
BIND = "scripts/numactl-bind-socket.sh"


class Machine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.bin = self.root / "bin"
        self.program("numactl", f'printf "%s\\n" "$@" > "{self.root}/arguments"; while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
        self.program("sayer", 'echo "$@"')

    def program(self, name, body, mode=0o755):
        self.bin.mkdir(exist_ok=True)
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(mode)
        return str(path)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def environment(self):
        return {**os.environ, "TANDEM_SYSTEM_ROOT": str(self.root), "PATH": f"{self.bin}:/usr/bin:/bin"}

    def run_script(self, script, *args, status=0, stdin=""):
        done = subprocess.run([script, *args], capture_output=True, text=True, input=stdin, env=self.environment(),
                              timeout=60, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done


KEPT = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG,
        signal.SIGWINCH}
ENDING = sorted(number for number in signal.Signals if number not in KEPT and number < signal.SIGRTMIN)


def default_signals():
    """A shell cannot trap what its parent ignored, as some that start tests do with SIGQUIT."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


class DisableBalancing(Machine):
    SWITCH = "proc/sys/kernel/numa_balancing"

    def setUp(self):
        super().setUp()
        self.write(self.SWITCH, "1\n")

    def switch(self):
        return (self.root / self.SWITCH).read_text().strip()

    def test_the_command_runs_with_the_switch_off_and_it_is_back_afterwards(self):
        for value in ("1", "2", "3"):
            self.write(self.SWITCH, value + "\n")
            done = self.run_script(BALANCING, "bash", "-c", f'cat "{self.root}/{self.SWITCH}"; echo "$0 $1"; cat', "a b", "*", stdin="in")
            self.assertEqual(done.stdout, "0\na b *\nin")
            self.assertEqual(done.stderr, "")
            self.assertEqual(self.switch(), value)

    def test_the_status_is_that_of_the_command(self):
        for status in (0, 1, 7, 125, 127, 255):
            self.run_script(BALANCING, "--", "bash", "-c", f"exit {status}", status=status)
            self.assertEqual(self.switch(), "1")
        self.run_script(BALANCING, "bash", "-c", "kill -KILL $$", status=128 + signal.SIGKILL)
        self.assertEqual(self.switch(), "1")

    def start(self, body):
        child = subprocess.Popen([BALANCING, "bash", "-c", f"{body}; echo ready; while :; do sleep 0.05; done"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment(),
                                 preexec_fn=default_signals)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stderr.close)
        self.assertEqual(child.stdout.readline(), "ready\n")
        self.assertEqual(self.switch(), "0")
        return child

    def test_signals_reach_the_command_and_the_switch_is_back(self):
        self.assertGreater(len(ENDING), 20)
        for number in ENDING:
            with self.subTest(number=number):
                # Not a shell, which ignores SIGQUIT; Python has own plans with some signals.
                program = f"import signal, time; signal.signal({number:d}, signal.SIG_DFL); print('ready', flush=True); time.sleep(60)"
                child = self.start(f'ulimit -c 0; exec "{sys.executable}" -c "{program}"')
                child.send_signal(number)
                self.assertEqual(child.wait(timeout=30), 128 + number)
                self.assertEqual(self.switch(), "1")

    def test_a_command_that_ends_in_its_own_way_after_a_signal_keeps_its_status(self):
        for number, name in ((signal.SIGTERM, "TERM"), (signal.SIGINT, "INT")):
            child = self.start(f"trap 'sleep 0.3; exit 5' {name}")
            child.send_signal(number)
            time.sleep(0.1)
            self.assertEqual(self.switch(), "0")  # the command still runs
            self.assertEqual(child.wait(timeout=30), 5)
            self.assertEqual(self.switch(), "1")

    def test_a_command_that_ignores_signals_goes_on(self):
        child = self.start("trap '' TERM")
        child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        self.assertIsNone(child.poll())
        child.send_signal(signal.SIGHUP)
        self.assertEqual(child.wait(timeout=30), 128 + signal.SIGHUP)
        self.assertEqual(self.switch(), "1")

    def test_a_kernel_without_the_switch_or_with_it_off_runs_the_command(self):
        self.write(self.SWITCH, "0\n")
        done = self.run_script(BALANCING, "bash", "-c", "exit 3", status=3)
        self.assertIn("off already", done.stderr)
        (self.root / self.SWITCH).unlink()
        done = self.run_script(BALANCING, "bash", "-c", "exit 4", status=4)
        self.assertIn("this kernel does no NUMA balancing", done.stderr)

    def test_without_the_right_to_write_nothing_is_run(self):
        (self.root / self.SWITCH).unlink()
        (self.root / self.SWITCH).symlink_to("/proc/sys/kernel/ngroups_max")  # nobody may write it
        done = self.run_script(BALANCING, "bash", "-c", "echo ran", status=125)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"^disable-numa-balancing: error: \S+numa_balancing: cannot be written \(.+\): run as root")

    def test_a_switch_that_cannot_be_set_back_is_told_with_the_remedy(self):
        switch = self.root / self.SWITCH
        done = self.run_script(BALANCING, "bash", "-c", f'rm "{switch}"; mkdir "{switch}"; exit 6', status=6)
        self.assertIn("cannot be set back to 1 (Is a directory): echo 1 | sudo tee", done.stderr)

    def test_mistakes_have_a_message_and_a_status_and_leave_the_switch(self):
        plain = self.program("plain", "echo no", mode=0o644)
        for args, status, message in (((), 125, "disable-numa-balancing.sh COMMAND"),
                                      (("--",), 125, "no command is given"),
                                      (("--off", "true"), 125, "unknown option --off"),
                                      (("no-such-program",), 127, "no-such-program: no such command in PATH"),
                                      (("./no/such",), 127, "./no/such: no such command"),
                                      ((plain,), 126, "cannot be executed"),
                                      ((str(self.root),), 126, "")):
            with self.subTest(args=args):
                self.assertIn(message, self.run_script(BALANCING, *args, status=status).stderr)
                self.assertEqual(self.switch(), "1")
        self.write(self.SWITCH, "maybe\n")
        self.assertIn("it holds 'maybe'", self.run_script(BALANCING, "true", status=125).stderr)
        self.assertIn("COMMAND [ARGS...]", self.run_script(BALANCING, "--help").stdout)


class BindSocket(Machine):
    def cpu(self, number, package, siblings, online=None, name="thread_siblings_list"):
        folder = f"sys/devices/system/cpu/cpu{number}"
        if online is not None:
            self.write(f"{folder}/online", f"{online}\n")
        if online != 0:
            self.write(f"{folder}/topology/physical_package_id", f"{package}\n")
            if siblings is not None:
                self.write(f"{folder}/topology/{name}", f"{siblings}\n")

    def node(self, number, cpus):
        self.write(f"sys/devices/system/node/node{number}/cpulist", f"{cpus}\n")

    def bind(self, *args):
        done = self.run_script(BIND, *args, "sayer", "a b", "*")
        self.assertEqual(done.stdout, "a b *\n")
        arguments = (self.root / "arguments").read_text().splitlines()
        self.assertEqual(arguments[-4:], ["--", "sayer", "a b", "*"])
        self.notes = done.stderr
        return arguments[:-4]

    def two_sockets(self):
        """Two sockets of four cores with two threads each; the second threads are numbered behind all cores."""
        for socket in range(2):
            for core in range(4):
                first, second = socket * 4 + core, 8 + socket * 4 + core
                for cpu in (first, second):
                    self.cpu(cpu, socket, f"{first},{second}", online=None if cpu == 0 else 1)
            self.node(socket, f"{socket * 4}-{socket * 4 + 3},{8 + socket * 4}-{11 + socket * 4}")

    def test_one_node_per_socket(self):
        self.two_sockets()
        self.assertEqual(self.bind("--socket", "0", "--mode", "physical"), ["--physcpubind=0-3", "--membind=0"])
        self.assertEqual(self.notes, "numactl-bind-socket: socket 0: nodes 0, interleave off, 4 threads (-t 4) on CPUs 0-3\n")
        self.assertEqual(self.bind("--socket=1", "--mode=physical"), ["--physcpubind=4-7", "--membind=1"])
        self.assertEqual(self.bind("--mode", "all", "--socket", "1", "--"), ["--physcpubind=4-7,12-15", "--membind=1"])
        self.assertEqual(self.bind("--socket", "01", "--mode", "all", "--interleave", "on"), ["--physcpubind=4-7,12-15", "--interleave=1"])

    def test_four_nodes_per_socket(self):
        for cpu in range(16):
            self.cpu(cpu, cpu // 8, str(cpu))
        for node in range(8):
            self.node(node, f"{2 * node}-{2 * node + 1}")
        self.assertEqual(self.bind("--socket", "1", "--mode", "physical"), ["--physcpubind=8-15", "--interleave=4-7"])
        self.assertEqual(self.bind("--socket", "1", "--mode", "all", "--interleave", "off"), ["--physcpubind=8-15", "--membind=4-7"])
        self.assertEqual(self.bind("--socket", "0", "--mode", "all", "--interleave=on"), ["--physcpubind=0-7", "--interleave=0-3"])

    def test_nodes_and_sockets_that_are_not_in_order(self):
        for cpu in range(8):
            self.cpu(cpu, 3 if cpu % 2 == 0 else 7, str(cpu))
        self.node(0, "0,4")
        self.node(2, "2,6")
        self.node(11, "1,3,5,7")
        self.node(12, "")  # memory without processors belongs to no socket
        self.assertEqual(self.bind("--socket", "3", "--mode", "all"), ["--physcpubind=0,2,4,6", "--interleave=0,2"])
        self.assertEqual(self.bind("--socket", "7", "--mode", "all"), ["--physcpubind=1,3,5,7", "--membind=11"])

    def test_siblings_in_ranges_and_in_the_newer_file(self):
        for cpu in range(8):
            first = cpu - cpu % 2
            self.cpu(cpu, 0, f"{first}-{first + 1}", name="core_cpus_list")
        self.node(0, "0-7")
        self.assertEqual(self.bind("--socket", "0", "--mode", "physical"), ["--physcpubind=0,2,4,6", "--membind=0"])

    def test_processors_that_are_offline_are_left_out(self):
        self.two_sockets()
        self.write("sys/devices/system/cpu/cpu1/online", "0\n")   # its sibling 9 is the core's first thread now
        self.write("sys/devices/system/cpu/cpu10/online", "0\n")
        self.assertEqual(self.bind("--socket", "0", "--mode", "physical"), ["--physcpubind=0,2-3,9", "--membind=0"])
        self.assertEqual(self.bind("--socket", "0", "--mode", "all"), ["--physcpubind=0,2-3,8-9,11", "--membind=0"])

    def test_nodes_without_memory_are_left_out(self):
        for cpu in range(4):
            self.cpu(cpu, cpu // 2, str(cpu))
            self.node(cpu, str(cpu))
        self.write("sys/devices/system/node/has_memory", "0,2-3\n")
        self.assertEqual(self.bind("--socket", "0", "--mode", "all"), ["--physcpubind=0-1", "--membind=0"])
        self.write("sys/devices/system/node/has_memory", "2-3\n")
        self.fails("socket 0 has no memory of its own", "--socket", "0", "--mode", "all", "true")

    def test_a_machine_that_does_not_count_sockets_has_one(self):
        self.cpu(0, -1, "0")
        self.node(0, "0")
        self.assertEqual(self.bind("--socket", "0", "--mode", "physical"), ["--physcpubind=0", "--membind=0"])

    def fails(self, message, *args, status=125):
        (self.root / "arguments").unlink(missing_ok=True)
        errors = self.run_script(BIND, *args, status=status).stderr
        self.assertIn(message, errors)
        self.assertTrue(errors.startswith("numactl-bind-socket: error: "), errors)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertFalse((self.root / "arguments").exists())

    def test_options_that_are_wrong_or_missing(self):
        self.two_sockets()
        good = ("--socket", "0", "--mode", "all")
        self.fails("there is no socket 2; this machine has: 0-1", "--socket", "2", "--mode", "all", "true")
        for value in ("x", "-1", "", "0x1", "99999"):
            self.fails(f"--socket: a number was expected, not '{value}'", "--socket", value, "--mode", "all", "true")
        self.fails("--mode: physical or all was expected, not 'some'", "--socket", "0", "--mode", "some", "true")
        self.fails("--interleave: on or off was expected, not '1'", *good, "--interleave", "1", "true")
        self.fails("--socket is missing", "--mode", "all", "true")
        self.fails("--mode is missing", "--socket", "0", "true")
        self.fails("--mode needs a value", "--socket", "0", "--mode")
        self.fails("no command is given", *good)
        self.fails("unknown option --nodes", *good, "--nodes", "0", "true")
        self.fails("no-such-program: no such command in PATH", *good, "no-such-program", status=127)
        self.fails("cannot be executed", *good, self.program("plain", "", mode=0o644), status=126)
        self.assertIn("--interleave on", self.run_script(BIND, "--help").stdout)

    def test_files_that_are_missing(self):
        self.fails("no processors are listed there", "--socket", "0", "--mode", "all", "true")
        self.cpu(0, 0, None)
        self.fails("this kernel knows no NUMA nodes", "--socket", "0", "--mode", "all", "true")
        self.node(0, "0")
        self.fails("--mode all does without", "--socket", "0", "--mode", "physical", "true")
        self.assertEqual(self.bind("--socket", "0", "--mode", "all"), ["--physcpubind=0", "--membind=0"])
        self.node(0, "zero")
        self.fails("it holds 'zero'", "--socket", "0", "--mode", "all", "true")
        (self.root / "sys/devices/system/cpu/cpu0/topology/physical_package_id").unlink()
        self.fails("which socket is this processor in?", "--socket", "0", "--mode", "all", "true")

    def test_without_numactl_nothing_is_run(self):
        self.two_sockets()
        (self.bin / "numactl").unlink()
        only = self.root / "only"
        only.mkdir()
        for name in ("bash", "sed", "sort", "env", "true"):
            (only / name).symlink_to(f"/usr/bin/{name}")
        done = subprocess.run(["/bin/bash", BIND, "--socket", "0", "--mode", "all", "true"], capture_output=True, text=True,
                              env={**self.environment(), "PATH": str(only)}, timeout=60, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn("numactl is not installed", done.stderr)

    def test_the_status_is_that_of_the_command(self):
        self.two_sockets()
        self.run_script(BIND, "--socket", "0", "--mode", "all", "bash", "-c", "exit 9", status=9)

    def test_both_scripts_together(self):
        self.two_sockets()
        self.write("proc/sys/kernel/numa_balancing", "1\n")
        done = self.run_script(BALANCING, BIND, "--socket", "1", "--mode", "physical", "bash", "-c",
                               f'cat "{self.root}/proc/sys/kernel/numa_balancing"; exit 8', status=8)
        self.assertEqual(done.stdout, "0\n")
        self.assertEqual((self.root / "proc/sys/kernel/numa_balancing").read_text(), "1\n")


if __name__ == "__main__":
    unittest.main()
