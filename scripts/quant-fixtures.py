"""Makes tests/data/quants from the golden vectors of the specification: the bytes as they are, floats as a hash per row.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("shared", metavar="SHARED", type=pathlib.Path, help="the folder with data/quants and tools/quant_codec.py")
shared = parser.parse_args().shared
source = shared / "data/quants"
target = pathlib.Path(__file__).resolve().parent.parent / "tests/data/quants"
sys.path.insert(0, str(shared / "tools"))
import quant_codec  # noqa: E402

NO_TYPE = {"i2_s", "q8_1"}  # a form of whole tensors that is refused, and one of activations
COLUMNS = 512


def row_hash(row):
    """FNV-1a of 64 bits over a row's float32 words."""
    value = 0xCBF29CE484222325
    for word in np.ascontiguousarray(row, "<f4").view("<u4"):
        value = ((value ^ int(word)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def dots(name, case, raw):
    """The expected products. Kernels of IQ6_K use the table whose smooth form the manifest's floats have."""
    if name != "iq6_k":
        return {"dot": case.get("dot_float64"), "dot_q8_0": case.get("dot_q8_0_activation_float64"),
                "dot_q8_k": case.get("dot_q8_k_activation_float64")}
    rows = quant_codec.iq6_k(raw.reshape(-1, 212), table=True).reshape(-1, COLUMNS).astype(np.float64)
    vector = np.load(source / "dot_vector.npy").astype(np.float64)
    q = np.load(source / "dot_vector.q8_k.npy").reshape(-1, 292)
    d = np.ascontiguousarray(q[:, :4]).view("<f4").astype(np.float64)
    rounded = (d * np.ascontiguousarray(q[:, 4:260]).view(np.int8)).reshape(-1)
    return {"dot": (rows @ vector).tolist(), "dot_q8_k": (rows @ rounded).tolist()}


def main():
    manifest = json.loads((source / "manifest.json").read_text())
    lines, hashes = [], []
    for old in target.glob("*.npy"):
        old.unlink()
    for name, entry in manifest["types"].items():
        if name in NO_TYPE:
            continue
        for which, case in entry["cases"].items():
            raw = np.load(source / case["q"])
            if which != "imatrix":
                shutil.copy(source / case["q"], target / f"{name}.{which}.q.npy")
                dq = np.load(source / case["dq"]) if "dq" in case else quant_codec.decode(name, raw, COLUMNS, 16)
                hashes.append(" ".join([name, which] + [row_hash(r) for r in dq.reshape(-1, COLUMNS)]))
            values = {"rmse": [case["rmse"], case["weighted_rmse"]] if "rmse" in case else None}
            if which != "imatrix":
                values |= dots(name, case, raw)
            lines += [" ".join([name, which, key] + [repr(v) for v in value]) for key, value in values.items() if value]
    for name in ["importance", "dot_vector", "dot_vector.q8_0", "dot_vector.q8_k", "input_main", "input_edge"]:
        shutil.copy(source / f"{name}.npy", target)
    for name in ["q8_0", "q8_1", "q8_k"]:
        for which in ["plain", "edge"]:
            shutil.copy(source / f"act_{name}.{which}.q.npy", target)
    (target / "expected.txt").write_text("\n".join(lines) + "\n")
    (target / "hashes.txt").write_text("\n".join(hashes) + "\n")


main()
