"""The "precompiled_charsmap" of SentencePiece's normalizers, as tokenizer.json files have it: the size in bytes of a
double-array trie of keys in UTF-8 (32 bits), its units of 32 bits, and the replacements, each ended by a byte 0.

A unit: bits 0-7 the label, bit 8 whether a key ends here, bits 10-30 the way to the children (bit 9: in steps of 256);
of the end of a key, bit 31, and in the others where its replacement begins.
"""

import struct


def units_of(keys):
    """Of a map from bytes to numbers."""
    root = {}
    for key, value in keys.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    taken, units, free, waiting = {0}, {}, 1, [(root, 0, 0)]
    while waiting:
        node, at, label = waiting.pop()
        base = free
        while base in taken or any(base ^ byte in taken for byte in node) or (base ^ at) >= 1 << 21:
            base += 1
        taken.update(base ^ byte for byte in node)
        taken.add(base)
        while free in taken:
            free += 1
        units[at] = (base ^ at) << 10 | (0 in node) << 8 | label
        for byte, child in node.items():
            if byte == 0:
                units[base] = 1 << 31 | child
            else:
                waiting.append((child, base ^ byte, byte))
    size = (max(taken) | 255) + 1  # every label leads somewhere within
    return [units.get(i, 0) for i in range(size)]


def charsmap(replacements):
    """Of a map from strings to strings."""
    texts, keys, begins = b"", {}, {}
    for key, text in replacements.items():
        if text not in begins:
            begins[text] = len(texts)
            texts += text.encode() + b"\0"
        keys[key.encode()] = begins[text]
    units = units_of(keys)
    return struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + texts
