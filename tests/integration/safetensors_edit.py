"""Edits a safetensors file in place: enough to make a wrong model on purpose."""

import json
import struct


def swap_tensors(path, prefix_a, prefix_b):
    """Exchanges the data of all tensors that begin with prefix_a with those of the same shape under prefix_b."""
    with open(path, "r+b") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        pairs = [(name, prefix_b + name[len(prefix_a):]) for name in header if name.startswith(prefix_a)]
        assert pairs, f"no tensor of {path} begins with {prefix_a}"
        for a, b in pairs:
            assert header[a]["shape"] == header[b]["shape"] and header[a]["dtype"] == header[b]["dtype"]
            header[a]["data_offsets"], header[b]["data_offsets"] = header[b]["data_offsets"], header[a]["data_offsets"]
        text = json.dumps(header, separators=(",", ":")).encode()
        assert len(text) <= length, "the header must not grow"
        f.seek(8)
        f.write(text.ljust(length))


def fill_tensors(path, prefix, pattern):
    """Every byte of all tensors that begin with prefix becomes `pattern`, repeated."""
    with open(path, "r+b") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        spans = [entry["data_offsets"] for name, entry in header.items() if name.startswith(prefix)]
        assert spans, f"no tensor of {path} begins with {prefix}"
        for begin, end in spans:
            assert (end - begin) % len(pattern) == 0
            f.seek(8 + length + begin)
            f.write(pattern * ((end - begin) // len(pattern)))
