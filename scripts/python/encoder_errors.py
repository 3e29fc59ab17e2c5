#!/usr/bin/env python3
"""Prints the errors of llama.cpp's encoders, which the tests of ours are compared with: the root mean square of the
error, of the numbers' own.

    pip install numpy gguf xllamacpp
    scripts/python/encoder_errors.py [models/demo/model.safetensors]

On normal numbers (those of tests/common/encode_test.cc), and on the experts of a safetensors file in bf16
(tests/pack/requantise_test.cc). FP8 is by its definition: a scale that the largest number of a block just fits."""

import ctypes
import importlib.util
import json
import math
import pathlib
import sys

import gguf
import numpy as np
from gguf import quants

NAMES = ["Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q5_0", "Q4_0", "IQ4_NL", "MXFP4"]


def normal_numbers(count, seed):
    state, uniform = seed, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        uniform.append(((state >> 11) + 0.5) * 2.0**-53)
    numbers = []
    for a, b in zip(uniform[::2], uniform[1::2]):
        radius, angle = math.sqrt(-2 * math.log(a)), 2 * math.pi * b
        numbers += [0.02 * radius * math.cos(angle), 0.02 * radius * math.sin(angle)]
    return np.array(numbers, np.float32)


def experts_of(path):
    """All numbers of the experts' matrices, in the order of the tensors' names."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    parts = []
    for name, t in sorted(json.loads(data[8:8 + length]).items()):
        if ".experts." not in name:
            continue
        assert t["dtype"] == "BF16", name
        begin, end = (8 + length + at for at in t["data_offsets"])
        parts.append((np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32))
    return np.concatenate(parts)


def library():
    place = pathlib.Path(importlib.util.find_spec("xllamacpp").origin).parent
    lib = ctypes.CDLL(str(next(place.glob("xllamacpp*.so"))))
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                        ctypes.c_int64, ctypes.c_void_p]
    return lib


def of_llama(lib, x, name):
    kind = gguf.GGMLQuantizationType[name]
    columns, size = gguf.GGML_QUANT_SIZES[kind]
    rows = x.reshape(-1, 256)
    blocks = np.zeros((len(rows), 256 // columns * size), np.uint8)
    lib.ggml_quantize_chunk(int(kind), rows.ctypes.data, blocks.ctypes.data, 0, len(rows), 256, None)
    return quants.dequantize(blocks, kind).reshape(-1)


def of_fp8(x, columns):
    blocks = x.reshape(-1, columns).astype(np.float64)
    scale = np.abs(blocks).max(1, keepdims=True).astype(np.float32).astype(np.float64) / 448
    y = blocks / np.where(scale == 0, 1, scale)
    step = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(np.abs(y), 1e-30))), -6) - 3)
    return (np.round(y / step) * step * scale).reshape(-1)


def main():
    lib = library()
    sets = {"normal": normal_numbers(1 << 17, 1)}
    for path in sys.argv[1:]:
        sets[path] = experts_of(pathlib.Path(path))
    for name, x in sets.items():
        print(f"{name}: {x.size} numbers")
        error = lambda y: math.sqrt(((y.astype(np.float64) - x)**2).sum() / (x.astype(np.float64)**2).sum())
        for kind in NAMES:
            print(f"  {kind.lower()} {error(of_llama(lib, x, kind)):.7f}")
        for kind, columns in (("fp8", 128), ("fp8_g32", 32)):
            print(f"  {kind} {error(of_fp8(x, columns)):.7f}")


if __name__ == "__main__":
    main()
