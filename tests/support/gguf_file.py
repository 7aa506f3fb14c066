"""Writes small GGUF files for tests. Standard library only."""

import random
import struct

STRING, FLOAT32 = 8, 6


def _text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(path, metadata, tensors):
    """metadata: {key: str or float}; tensors: {name: (extents, first one fastest; values)}, all F32."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        header += _text(key)
        header += struct.pack("<I", STRING) + _text(value) if isinstance(value, str) else struct.pack("<If", FLOAT32, value)
    data = b""
    for name, (extents, values) in tensors.items():
        header += _text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
    header += bytes(-len(header) % 32)
    path.write_bytes(header + data)
    return path


def write_lora(path, arch, shapes, rank=4, alpha=8.0, size=0.1, seed=1, **metadata):
    """An adapter with random values of up to `size` for the matrices {name: (columns, rows)}."""
    generator = random.Random(seed)

    def values(n):
        return [generator.uniform(-size, size) for _ in range(n)]

    tensors = {}
    for name, (columns, rows) in shapes.items():
        tensors[name + ".lora_a"] = ((columns, rank), values(columns * rank))
        tensors[name + ".lora_b"] = ((rank, rows), values(rank * rows))
    keys = {"general.type": "adapter", "general.architecture": arch, "adapter.type": "lora",
            "adapter.lora.alpha": alpha, **metadata}
    return write_gguf(path, keys, tensors)


def write_control_vector(path, arch, n_embd, layers, size=0.5, seed=1):
    """A control vector with a random direction for each of the layers."""
    generator = random.Random(seed)
    tensors = {f"direction.{layer}": ((n_embd,), [generator.uniform(-size, size) for _ in range(n_embd)])
               for layer in layers}
    return write_gguf(path, {"general.architecture": "controlvector", "controlvector.model_hint": arch}, tensors)


def without_character(source, target, character):
    """A copy of a model whose vocabulary has no token for an ASCII character by itself: the entry of another one takes its place."""
    content = source.read_bytes()
    entry, other = (struct.pack("<Q", 1) + c.encode() for c in (character, "y"))
    assert content.count(entry) == 1
    target.write_bytes(content.replace(entry, other))
    return target
