"""Compares perplexity and divergence on a real model with the peer's figures in tests/data/quants/peer_figures.json.

usage: peer_figures_test.py LLAMA_PERPLEXITY LLAMA_QUANTIZE     exit status 77: the model or the text is missing (ctest reports "skipped")
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PERPLEXITY, QUANTIZE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = "/usr/share/common-licenses/GPL-3"
with open("tests/data/quants/peer_figures.json", encoding="utf-8") as figures_file:
    FIGURES = json.load(figures_file)

if not os.path.exists(MODEL):
    print(f"{MODEL} is missing: scripts/get-model.sh smollm2")
    sys.exit(77)
if not os.path.exists(TEXT):
    print(f"{TEXT} is missing")
    sys.exit(77)
with open(TEXT, "rb") as text_file:
    if hashlib.sha256(text_file.read()).hexdigest() != FIGURES["text_sha256"]:
        print(f"{TEXT} is another version of the text")
        sys.exit(77)


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"{args}: status {done.returncode}\n{done.stderr}"
    return done.stdout


class PeerFigures(unittest.TestCase):
    def test_perplexity_and_divergence_are_those_of_the_peer(self):
        with tempfile.TemporaryDirectory() as folder:
            base, small = os.path.join(folder, "base.kld"), os.path.join(folder, "q8_0.gguf")
            shown = run(PERPLEXITY, "-m", MODEL, "-f", TEXT, "--chunks", "2", "--kl-divergence-base", base)
            wanted = FIGURES["perplexity"]
            ours = float(re.search(r"= ([\d.]+) \+/-", shown)[1])
            self.assertLess(abs(ours / wanted["peer"]["2 chunks"] - 1), wanted["bound"])
            run(QUANTIZE, "--allow-requantize", MODEL, small, "q8_0")
            shown = run(PERPLEXITY, "-m", small, "--kl-divergence-base", base, "--kl-divergence")
            wanted = FIGURES["kl_divergence"]
            ours = float(re.search(r"Mean    KLD: +([\d.]+)", shown)[1])
            self.assertLess(abs(ours / wanted["peer"]["2 chunks"] - 1), wanted["bound"])
            ours = float(re.search(r"Same top p: +([\d.]+)", shown)[1]) / 100
            self.assertLess(abs(ours - wanted["peer"]["same top, 2 chunks"]), 0.03)


unittest.main()
