#!/usr/bin/env python3
"""Blocks of int2 (common/formats/blocks.h) with the numbers that they stand for, by the format's description and in
nothing but Python: tests/fixtures/blocks/int2.bin.

  scripts/python/int2_blocks.py tests/fixtures/blocks/int2.bin
"""

import random
import struct
import sys

BLOCKS, COLUMNS = 24, 64


def bf16(value):
    """The upper half of an f32, as bits."""
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def number_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def main(path):
    dice = random.Random(1)
    blocks, numbers = b"", []
    for _ in range(BLOCKS):
        scale = bf16(dice.random() * 10.0 ** dice.randrange(-6, 2))
        offset = bf16((dice.random() - 0.6) * 10.0 ** dice.randrange(-6, 2))
        values = [dice.randrange(4) for _ in range(COLUMNS)]
        packed = bytes(sum(values[16 * group + i] << 2 * group for group in range(4)) for i in range(16))
        blocks += struct.pack("<HH", scale, offset) + packed
        numbers += [number_of(scale) * value + number_of(offset) for value in values]
    with open(path, "wb") as out:
        out.write(blocks + struct.pack(f"<{len(numbers)}f", *numbers))


if __name__ == "__main__":
    main(sys.argv[1])
