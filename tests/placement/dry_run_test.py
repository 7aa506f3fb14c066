"""Plans of the real programs with --dry-run: the command lines that must work, and those of docs/offload.md with the plans
that it shows. Models are sparse files: headers without weights. Standard library only.

usage: dry_run_test.py BIN_FOLDER [--update]    (--update writes the plans of today into docs/offload.md)
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from gguf_file import write_lora  # noqa: E402  (the path comes first)

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
UPDATE = "--update" in sys.argv
if UPDATE:
    sys.argv.remove("--update")
DOCUMENT = pathlib.Path("docs/offload.md")
FOLDER = tempfile.TemporaryDirectory()
HOST = "--sim-device CPU:128GiB"


def model(preset, *options):
    """Path of a sparse file of that shape."""
    path = pathlib.Path(FOLDER.name) / f"{'-'.join([preset, *options]).replace('--', '')}.gguf"
    if not path.exists():
        subprocess.run([BIN / "llama-gguf", "synth", "--preset", preset, *options, "--sparse", "-o", path],
                       check=True, capture_output=True, timeout=120)
    return str(path)


def run(line, m=None, env=None):
    """Runs a command line in which M is the model."""
    words = shlex.split(line)
    words[0] = str(BIN / pathlib.Path(words[0]).name)
    words = [m if word in ("M", "M.gguf") else word for word in words]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env={**clean, **(env or {})})


def cards(*sizes):
    return " ".join(f"--sim-device CUDA{i}:{size}" for i, size in enumerate(sizes))


def plan(line, m, devices, env=None):
    """The JSON plan of a line that fits."""
    done = run(f"{line} --dry-run json {HOST} {devices}", m, env)
    assert done.returncode == 0, f"{line}: status {done.returncode}\n{done.stderr}\n{done.stdout[-2000:]}"
    return json.loads(done.stdout)


def devices_of(document, pattern):
    """Devices of the tensors whose names match."""
    return {place["device"] for tensor in document["tensors"] if re.search(pattern, tensor["name"])
            for place in tensor["placements"][:1]}


def blocks_on(document, device, pattern=r"_exps\.weight$"):
    """Numbers of the blocks that have such a tensor on the device."""
    return sorted({int(tensor["name"].split(".")[1]) for tensor in document["tensors"]
                   if re.search(pattern, tensor["name"]) and tensor["placements"][0]["device"] == device})


QWEN = "qwen3-30b-a3b"
DEEPSEEK = "deepseek-v3"


class AcceptanceLines(unittest.TestCase):
    """Section 16 of the command-line specification. What asks for a thing that this version lacks is refused by name."""

    def refused(self, line, reason):
        done = run(f"{line} --dry-run {HOST} {cards('24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 1, line)
        self.assertIn(reason, done.stderr)

    def test_01_all_experts_in_host_memory(self):
        d = plan("llama-server -m M.gguf -ngl 99 --cpu-moe -c 32768 -fa on --host 0.0.0.0 --port 8080", model(QWEN),
                 cards("24GiB"))
        self.assertEqual(devices_of(d, "_exps"), {"CPU"})
        self.assertEqual(devices_of(d, r"blk\.\d+\.(attn|ffn_norm|ffn_gate_inp)"), {"CUDA0"})
        self.assertEqual(d["output"], "CUDA0")
        self.assertEqual(d["context"]["n_ctx"], 32768)

    def test_02_experts_of_twenty_blocks_in_host_memory(self):
        d = plan("llama-server -m M.gguf -ngl 99 -ncmoe 20 -ctk q8_0 -ctv q8_0 -fa on -b 4096 -ub 4096 -t 16 --no-mmap",
                 model(QWEN), cards("24GiB"))
        self.assertEqual(blocks_on(d, "CPU"), list(range(20)))
        self.assertEqual(d["context"]["type_k"], "q8_0")
        self.assertIn("host", {p["kind"] for t in d["tensors"] for p in t["placements"]})

    def test_03_first_match_wins(self):
        line = r'''llama-server -m M.gguf -ngl 99 -ot "blk\.(0|1|2)\.ffn_.*_exps\.=CUDA0" -ot "exps=CPU" -fmoe -mla 3 -amb 512 -ub 2048'''
        d = plan(line, model(DEEPSEEK), cards("48GiB"))
        self.assertEqual(devices_of(d, "_exps"), {"CPU"})
        d = plan(line, model(QWEN), cards("24GiB"))
        self.assertEqual(blocks_on(d, "CUDA0"), [0, 1, 2])
        self.assertEqual(blocks_on(d, "CPU"), list(range(3, 48)))
        d = plan(f"{line} -rtr", model(QWEN), cards("24GiB"))  # the CPU's tensors are rewritten in memory
        self.assertEqual({p["kind"] for t in d["tensors"] for p in t["placements"] if p["device"] == "CPU"}, {"host"})

    def test_04_rules_for_two_cards(self):
        d = plan(r'''llama-server -m M.gguf -ngl 99 -ot "blk\.[0-9]\.ffn_.*_exps=CUDA0,blk\.1[0-9]\.ffn_.*_exps=CUDA1,exps=CPU" -ts 1,1''',
                 model(QWEN), cards("24GiB", "24GiB"))
        self.assertEqual(blocks_on(d, "CUDA0"), list(range(10)))
        self.assertEqual(blocks_on(d, "CUDA1"), list(range(10, 20)))
        self.assertEqual(d["layers"], ["CUDA0"] * 25 + ["CUDA1"] * 23)

    def test_05_sweep_bench(self):
        d = plan("llama-sweep-bench -m M.gguf -c 8704 -b 2048 -ub 512 -ngl 99 -ot exps=CPU -t 8 -tb 16 -fa on -wb",
                 model(QWEN), cards("24GiB"))
        self.assertEqual(devices_of(d, "_exps"), {"CPU"})

    def test_06_bench_plans_every_placement_of_its_grid(self):
        done = run(f"llama-bench -m M.gguf -ngl 99 -ncmoe 0,10,20 -p 512 -n 128 -r 3 -o json --dry-run {HOST} {cards('24GiB')}",
                   model(QWEN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"^it fits$", done.stdout, re.M)), 3)
        self.assertIn("--n-cpu-moe 10: ", done.stdout)

    def test_07_no_layers_on_cards(self):
        d = plan('llama-cli -m M.gguf -no-cnv -p "Hello" -n 32 --temp 0 -ngl 0 -t 4', model("qwen3-0.6b"), cards("8GiB"))
        self.assertEqual(devices_of(d, "."), {"CPU"})

    def test_08_cache_in_host_memory(self):
        d = plan(r'''llama-server -m M.gguf -fit off -ngl all -sm layer -mg 0 -ot "\.ffn_(up|down|gate)_exps=CPU" -nkvo''',
                 model(QWEN), cards("24GiB"))
        self.assertEqual(set(d["kv"]), {"CPU"})
        self.assertEqual(set(d["layers"]), {"CUDA0"})
        self.assertEqual(next(x for x in d["devices"] if x["name"] == "CUDA0")["kv"], 0)

    def test_09_numa_and_threads(self):
        line = "llama-server -m M.gguf --numa numactl --mlock -t 32 -tb 64 --cpu-moe --ctx-checkpoints 8"
        d = plan(line, model(QWEN), cards("24GiB"))
        self.assertEqual(devices_of(d, "_exps"), {"CPU"})
        plan(f"{line} --cache-ram 16384 --swa-full -thp --cache-reuse 256", model(QWEN), cards("24GiB"))
        for numa in ("distribute", "isolate"):
            d = plan(f"llama-server -m M.gguf --numa {numa} --cpu-moe", model(QWEN), cards("24GiB"))
            self.assertEqual(devices_of(d, "_exps"), {"CPU"})

    def test_09b_the_context_is_whole_blocks_and_beyond_the_training_a_warning(self):
        done = run(f"llama-server -m M.gguf -np 1 -c 300 --dry-run {HOST}", model(QWEN))
        self.assertIn("context 320,", done.stdout)
        self.assertNotIn("warning", done.stdout)
        done = run(f"llama-server -m M.gguf -np 1 -c 1048576 --dry-run {HOST}", model(QWEN))
        self.assertIn("warning: the context of 1048576 tokens is longer than the ", done.stdout)

    def test_09c_fit_params_plans_for_any_host_memory(self):
        done = run(f"llama-fit-params -m M.gguf -c 8192 --sim-device CPU:64GiB {cards('24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("-ngl ", done.stdout)

    def test_10_unknown_buffer_type_lists_the_known_ones(self):
        done = run(f"llama-server -m M.gguf -ot exps=NOSUCH {cards('24GiB', '24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn("Available buffer types:\n  CPU\n  CUDA0\n  CUDA1\n  CUDA_Host\n", done.stderr)
        self.assertIn("error: Invalid tensor buffer type override: exps=NOSUCH", done.stderr)
        self.assertIn('unknown buffer type "NOSUCH"', done.stderr)

    def test_11_unknown_flag(self):
        done = run("llama-server --no-such-flag")
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: invalid argument: --no-such-flag", done.stderr)

    def test_12_flags_win_over_variables(self):
        d = plan("llama-server -m M.gguf -c 8192", model(QWEN), cards("24GiB"),
                 {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_CPU_MOE": "1"})
        self.assertEqual(d["context"]["n_ctx"], 8192)
        self.assertEqual(devices_of(d, "_exps"), {"CPU"})

    def test_13_whole_layers_of_a_list(self):
        line = r'''-m M -c 32768 -ngl 999 -fa on -t 16 -b 4096 -ub 4096 --jinja --no-mmap -ot "blk\.([0-9]|[1-2][0-9]|30)\.=CUDA0,exps=CPU"'''
        for program in ("llama-server", "llama-sweep-bench"):
            d = plan(f"{program} {line}", model(QWEN), cards("48GiB"))
            self.assertEqual(blocks_on(d, "CPU"), list(range(31, 48)))
        done = run(f"llama-sweep-bench {line} --dry-run {HOST} {cards('48GiB')}", model(QWEN))
        self.assertIn("not used by llama-sweep-bench: --jinja", done.stderr)

    def test_14_n_cpu_moe(self):
        d = plan("llama-server -m M -ngl 999 --n-cpu-moe 31", model(QWEN), cards("24GiB"))
        self.assertEqual(blocks_on(d, "CPU"), list(range(31)))

    def test_15_layers_on_two_cards(self):
        d = plan(r'''llama-server -m M -ngl 999 -ot "blk\.([0-9])\.=CUDA0,blk\.(1[0-9])\.=CUDA1,exps=CPU"''', model(QWEN),
                 cards("24GiB", "24GiB"))
        self.assertEqual(devices_of(d, r"blk\.[0-9]\."), {"CUDA0"})
        self.assertEqual(devices_of(d, r"blk\.1[0-9]\."), {"CUDA1"})

    def test_16_17_patterns_of_experts(self):
        d = plan(r'''llama-server -m M -ngl 999 -ot "\.ffn_.*_exps\.=CPU"''', model(QWEN), cards("24GiB"))
        self.assertEqual(devices_of(d, "_exps"), {"CPU"})
        line = r'''llama-server -m M -ngl 999 -ot "blk\.(19|[2-9][0-9])\.ffn_(up|gate|down)_exps\.weight=CPU"'''
        d = plan(line, model(QWEN), cards("24GiB"))
        self.assertEqual(blocks_on(d, "CPU"), list(range(19, 48)))
        done = run(f"{line} -sm graph --dry-run {cards('24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn("-sm graph: needs split mode graph, not in this version; use -sm layer", done.stderr)

    def test_18_fit_leaves_its_margin(self):
        for size in ("8GiB", "12GiB", "24GiB"):
            d = plan("llama-server -m M --fit --fit-margin 2048", model(QWEN), cards(size))
            card = next(x for x in d["devices"] if x["name"] == "CUDA0")
            self.assertGreaterEqual(card["margin"], 2048 << 20)
            self.assertGreater(card["weights"], 0)

    def test_19_cache_types(self):
        d = plan("llama-server -m M -ngl 999 --cache-type-k q8_0 --cache-type-v q8_0", model("llama3-8b"), cards("24GiB"))
        self.assertEqual(d["context"]["type_v"], "q8_0")
        done = run("llama-server -m M -ngl 999 --cache-type-k q8_0 --cache-type-v q8_0 -fa off --dry-run", model("llama3-8b"))
        self.assertEqual(done.returncode, 1)

    def test_20_experts_step_by_step(self):
        d = plan(r'''llama-server -m M -ngl 999 -fmoe 0 -ot "\.ffn_.*_exps\.=CPU"''', model(QWEN), cards("24GiB"))
        self.assertEqual(devices_of(d, "_exps"), {"CPU"})

    def test_21_seven_cards_and_halved_layers(self):
        head = ('llama-sweep-bench -m M -c 16384 --no-mmap -ngl 999 -ot "blk.(0|1|2|3|4|5|6|7).ffn.=CUDA0" '
                '-ot "blk.(8|9|10|11).ffn.=CUDA1" -ot "blk.(12|13|14|15).ffn.=CUDA2" -ot "blk.(16|17|18|19|20).ffn.=CUDA3" '
                '-ot "blk.(21|22|23).ffn.=CUDA4" -ot "blk.(24|25|26).ffn.=CUDA5" '
                '-ot "blk.(27|28|29|30|31|32|33|34).ffn.=CUDA6" ')
        tail = '-ot "ffn.*=CPU" -fa -mg 0 -ub 2048 -mla 1 -fmoe'
        halves = "".join(f'-ot "blk.{layer}.ffn_(norm|gate_inp|gate_shexp|down_shexp|up_shexp).weight={card}" '
                         f'-ot "blk.{layer}.ffn_gate_exps.weight={card}" ' for layer, card in ((35, "CUDA4"), (36, "CUDA5")))
        seven = cards(*["96GiB"] * 7).replace("CPU", "CPU")
        host = "--sim-device CPU:512GiB"
        done = run(f"{head}{tail} --dry-run json {host} {seven}", model(DEEPSEEK))
        self.assertEqual(done.returncode, 0, done.stderr)
        d = json.loads(done.stdout)
        self.assertEqual(devices_of(d, r"blk\.22\.ffn_up_exps"), {"CUDA4"})
        self.assertEqual(devices_of(d, r"blk\.40\.ffn_up_exps"), {"CPU"})
        done = run(f"{head}{halves}{tail} --dry-run json {host} {seven}", model(DEEPSEEK))
        self.assertEqual(done.returncode, 0, done.stderr)
        mixed = [note for note in json.loads(done.stdout)["notes"] if "35-36" in note]
        self.assertEqual(len(mixed), 1)
        self.assertIn("each projection runs where its tensor is", mixed[0])

    def test_22_24_27_short_lines(self):
        plan("llama-sweep-bench -c 8704 -ub 512 -m M", model(QWEN), cards("24GiB"))
        plan("llama-server -m M -ngl 999 --cpu-moe --nvlink-optimized", model(QWEN), cards("24GiB", "24GiB"))
        done = run(f"llama-server -m M -ngl 999 --cpu-moe -b 512 -ub 2048 --dry-run json {HOST} {cards('24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["context"]["n_ubatch"], 512)
        self.assertEqual(done.stderr.count("-ub is now 512"), 1)

    def test_23_old_names(self):
        small = str(pathlib.Path("tests/data/models/llama.gguf").resolve())
        cli = f'main -m M -p "Hello" -n 16 --dry-run {HOST} {cards("1GiB")}'
        bench = f'benchmark --model M --prompt "Hello" --iterations 3 --dry-run {HOST} {cards("1GiB")}'
        for line, name in ((cli, "llama-cli"), (bench, "llama-bench")):
            done = run(line, small)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("it fits\n", done.stdout)
            self.assertEqual(done.stderr.count(f"is an old name; this is {name}\n"), 1, done.stderr)
            done = run(f"{line} --moe-cache-stats", small)
            self.assertEqual(done.returncode, 1)
            self.assertIn("needs the expert cache", done.stderr)
        done = run(f"main -m M --port 0 --dry-run {HOST}", small)
        self.assertIn("main is an old name; this is llama-server\n", done.stderr)
        self.assertIn("4 sequences", done.stdout)  # the server's slots

    def test_25_28_refusals(self):
        done = run("llama-server -m M -ngl 999 --cpu-moe --moe-cache-mib 8192", model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs the expert cache", done.stderr)
        done = run("llama-server -m M -cuda grahps=1", model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn("offload-batch-size=INT", done.stderr)

    def test_26_statuses_of_a_dry_run(self):
        line = "llama-server -m M -ngl 999 --cpu-moe --dry-run json"
        done = run(f"{line} --sim-device CUDA0:24GiB,bw=1000,link=25 --sim-device CUDA1:12GiB", model(QWEN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["fits"])
        done = run(f"{line} --sim-device CUDA0:256MiB", model(QWEN))
        self.assertEqual(done.returncode, 2)
        document = json.loads(done.stdout)
        self.assertFalse(document["fits"])
        self.assertGreater(next(x for x in document["devices"] if x["name"] == "CUDA0")["shortfall"], 0)
        done = run(f'{line} --sim-device CUDA0:24GiB -ot "(exps=CPU"', model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn('pattern "(exps" does not compile: at position 5', done.stderr)


class Plans(unittest.TestCase):
    def test_merged_tensors_are_no_pages_of_the_file(self):
        d = plan("llama-server -m M -ngl 999 --cpu-moe -muge", model(QWEN), cards("24GiB"))
        kinds = {}
        for tensor in d["tensors"]:
            kinds.setdefault(tensor["name"].split(".")[-2], set()).update(place["kind"] for place in tensor["placements"])
        self.assertEqual(kinds["ffn_gate_exps"] | kinds["ffn_up_exps"], {"host"})
        self.assertEqual(kinds["ffn_down_exps"], {"mapped"})
        done = run(f"llama-server -m M -ngl 999 --cpu-moe -muge --dry-run --sim-device CPU:8GiB {cards('24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stdout, r"it does not fit: CPU needs")

    def test_a_model_of_700_gb_is_planned_within_a_second(self):
        path = model(DEEPSEEK, "--mix", "q8_0")
        self.assertGreater(os.path.getsize(path), 650e9)
        self.assertLess(os.stat(path).st_blocks * 512, 100e6)
        line = f"llama-server -m M -ngl 999 --cpu-moe -c 32768 --dry-run json --sim-device CPU:1TiB {cards('48GiB')}"
        times = []
        for _ in range(3):
            start = time.monotonic()
            done = run(line, path)
            times.append(time.monotonic() - start)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(min(times), 1.0)

    def test_what_does_not_fit_says_the_smallest_change_and_that_fits(self):
        line = f"llama-server -m M -ngl 99 -c 16384 --dry-run json {HOST} {cards('12GiB')}"
        done = run(line, model(QWEN))
        self.assertEqual(done.returncode, 2)
        change = json.loads(done.stdout)["change"]
        self.assertRegex(change, r"^--n-cpu-moe \d+$")
        self.assertEqual(run(f"{line} {change}", model(QWEN)).returncode, 0)
        fewer = f"--n-cpu-moe {int(change.split()[1]) - 1}"
        self.assertEqual(run(f"{line} {fewer}", model(QWEN)).returncode, 2)

    def test_adapters_are_counted_where_their_tensors_are(self):
        names = [f"blk.{layer}.attn_q.weight" for layer in (0, 47)]
        lora = write_lora(pathlib.Path(FOLDER.name) / "lora.gguf", "qwen3moe", {name: (2048, 4096) for name in names})
        line = r"llama-server -m M.gguf -ngl 99 -c 4096 -ot blk\.0\.attn_q=CPU"
        plain = plan(line, model(QWEN), cards("48GiB"))
        d = plan(f"{line} --lora {lora}", model(QWEN), cards("48GiB"))
        self.assertEqual(devices_of(d, r"^blk\.0\.attn_q\.weight\.lora_"), {"CPU"})
        self.assertEqual(devices_of(d, r"^blk\.47\.attn_q\.weight\.lora_"), {"CUDA0"})
        pair = 4 * (2048 * 4 + 4 * 4096)
        grown = [after["weights"] - before["weights"] for before, after in zip(plain["devices"], d["devices"])]
        self.assertEqual(grown, [2 * pair, pair])  # the host keeps a copy of what a card gets
        wrong = write_lora(pathlib.Path(FOLDER.name) / "wrong.gguf", "qwen3moe", {names[0]: (2048, 2048)})
        done = run(f"{line} --lora {wrong} --dry-run {HOST}", model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn("blk.0.attn_q.weight.lora_b: 4 x 4096 expected", done.stderr)

    def test_the_document_says_all_of_every_tensor_and_device(self):
        d = plan("llama-server -m M -ngl 99 --cpu-moe -c 4096", model(QWEN), cards("24GiB,bw=900,link=20"))
        sizes = {"weights", "kv", "arenas", "staging", "overhead", "total", "memory", "free", "margin", "shortfall"}
        for device in d["devices"]:
            self.assertEqual(set(device), sizes | {"name", "speeds"})
            self.assertEqual(device["total"], sum(device[k] for k in ("weights", "kv", "arenas", "staging", "overhead")))
            self.assertEqual(device["margin"], device["free"] - device["total"])
        self.assertEqual(d["devices"][1]["speeds"]["link"], 20e9)
        self.assertEqual([x["speeds"]["source"] for x in d["devices"]], ["assumed", "given"])
        for tensor in d["tensors"]:
            self.assertEqual(set(tensor), {"name", "type", "shape", "bytes", "placements", "rule"})
            self.assertEqual(tensor["bytes"], tensor["placements"][0]["bytes"])
            for place in tensor["placements"]:
                self.assertEqual(set(place), {"device", "kind", "role", "bytes"})
        up = next(x for x in d["tensors"] if x["name"] == "blk.5.ffn_up_exps.weight")
        self.assertEqual(up["shape"], [2048, 768, 128])
        self.assertEqual((up["rule"], up["type"]), ("--cpu-moe", "Q4_K"))
        offload = d["prompt_offload"]
        self.assertEqual((offload["device"], offload["tokens_of"]), ("CUDA0", "step"))
        self.assertGreater(offload["tokens"], 1)
        self.assertEqual(offload["bytes"], sum(x["bytes"] for x in d["tensors"] if "_exps" in x["name"]))

    def test_a_profile_is_measured_once_named_and_checked(self):
        path = pathlib.Path(FOLDER.name) / "devices.json"
        line = f"llama-server -m M -t 1 --device-profile {path} {cards('24GiB')} --dry-run"
        first = run(f"{line} json", model(QWEN))
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn(f"--device-profile {path}: measuring CPU", first.stderr)
        stored = json.loads(path.read_text())
        [cpu] = stored["devices"]
        speeds = json.loads(first.stdout)["devices"][0]["speeds"]
        self.assertEqual(speeds, {"bandwidth": cpu["bandwidth"], "link": None, "arithmetic": cpu["arithmetic"],
                                  "source": "measured"})
        again = run(f"{line} json", model(QWEN))
        self.assertNotIn("measuring", again.stderr)
        self.assertEqual(json.loads(again.stdout)["tensors"], json.loads(first.stdout)["tensors"])
        self.assertRegex(run(line, model(QWEN)).stdout, rf"\nspeeds: CPU \d+ GB/s \(measured\), CUDA0 .* \(assumed\); {path}\n")
        cpu["memory"] += 1  # another machine
        path.write_text(json.dumps(stored))
        done = run(line, model(QWEN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("measuring CPU", done.stderr)
        self.assertEqual(json.loads(path.read_text())["devices"][0]["memory"], cpu["memory"] - 1)
        path.write_text("{")
        done = run(line, model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("error"), 1, done.stderr)
        self.assertIn(f"--device-profile {path}: the file is not valid JSON", done.stderr)

    def test_a_start_that_does_not_fit_is_refused_with_status_2(self):
        done = run(f"llama-cli -m M -ngl 99 -p x -n 1 {cards('1GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 2)
        self.assertIn("the model does not fit: CUDA0 needs ", done.stderr)
        self.assertIn("it would fit with ", done.stderr)

    def test_flags_of_a_fitted_plan_give_that_plan(self):
        fitted = plan("llama-server -m M", model(QWEN), cards("12GiB"))
        again = plan(f"llama-server -m M {fitted['flags']}", model(QWEN), cards("12GiB"))
        place = lambda d: [(t["name"], [p["device"] for p in t["placements"]]) for t in d["tensors"]]
        self.assertEqual(place(again), place(fitted))
        self.assertEqual(again["devices"], fitted["devices"])

    def test_devices(self):
        done = run(f"llama-server --list-devices {cards('24GiB', '512MiB')}")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "Available devices:")
        self.assertIn("  CUDA1: simulated device (512 MiB, 512 MiB free)", lines)
        done = run(f"llama-server --list-devices -v {cards('24GiB,bw=900,link=20')}")
        self.assertIn("    memory 900 GB/s, link 20 GB/s\n", done.stdout)
        done = run(f"llama-server -m M -dev CUDA7 --dry-run {cards('24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn("invalid device: CUDA7; known GPU devices: CUDA0", done.stderr)
        done = run(f"llama-server -m M -sm none -mg 1 -ngl 9 --dry-run {cards('24GiB')}", model(QWEN))
        self.assertEqual(done.returncode, 1)
        done = run("llama-server -m M --dry-run --sim-device CUDA0:24GiB,CUDA1:24GiB", model(QWEN))
        self.assertEqual(done.returncode, 1)
        self.assertIn("one device a flag", done.stderr)
        done = run("llama-cli -m M -p x --sim-device CPU:24GiB", model(QWEN))
        self.assertEqual(done.returncode, 1)
        d = plan("llama-server -m M -ngl 99 -dev CUDA1,CUDA0 -ts 1,2 -ot exps=CPU", model(QWEN), cards("24GiB", "24GiB"))
        self.assertEqual([x["name"] for x in d["devices"]], ["CPU", "CUDA1", "CUDA0"])
        self.assertEqual(d["layers"][0], "CUDA1")


BLOCK = re.compile(r"```console\n\$ (llama-[^\n]*--dry-run[^\n]*)\n(.*?)```", re.S)


def plan_text(line):
    """What a line of the document prints from the line that names the model on."""
    presets = re.search(r"-m (\S+)\.gguf", line).group(1)
    done = run(re.sub(r"-m \S+", "-m M", line, count=1), model(presets))
    return done.stdout[done.stdout.find("model "):]


class Document(unittest.TestCase):
    def test_plans_are_those_that_the_programs_print(self):
        text = DOCUMENT.read_text()
        blocks = BLOCK.findall(text)
        self.assertGreaterEqual(len(blocks), 8)
        for line, shown in blocks:
            self.assertEqual(plan_text(line), shown, line)


TUNING = re.compile(r"^ *\$ (llama-.*MODEL\.gguf.*)$", re.M)


class Tuning(unittest.TestCase):
    def test_every_command_runs(self):
        """The steps of the document, on a small model and a short context."""
        lines = TUNING.findall(DOCUMENT.read_text())
        self.assertGreaterEqual(len(lines), 7)
        small = str(pathlib.Path("tests/data/models/qwen3moe-q8_0.gguf").resolve())
        for line in lines:
            short = re.sub(r"-t \d", "-t 1", line.replace("MODEL.gguf", "M")).replace("-c 8192", "-c 1024 -t 1 -dev none")
            for name in re.findall(r"--chart (\S+)", line):
                short = short.replace(name, f"{FOLDER.name}/{name}")
            done = run(short, small)
            self.assertEqual(done.returncode, 0, f"{line}\n{done.stderr}")
            for name in re.findall(r"--chart (\S+)", line):
                self.assertGreater((pathlib.Path(FOLDER.name) / name).stat().st_size, 1000)


def update():
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(BLOCK.sub(lambda m: f"```console\n$ {m.group(1)}\n{plan_text(m.group(1))}```", text))


if __name__ == "__main__":
    if UPDATE:
        update()
    else:
        unittest.main(verbosity=2)
