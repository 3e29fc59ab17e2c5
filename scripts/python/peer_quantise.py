#!/usr/bin/env python3
"""Quantises a GGUF file with llama.cpp's own function, as llama-quantize does.

    peer_quantise.py IN.gguf q4_k_m|q5_k_m|q6_k|q8_0|... OUT.gguf [THREADS]

mxfp4 is experts as MXFP4 and the other matrices as Q8_0."""

import ctypes
import sys

import llama_cpp as lib

NAMES = {"mxfp4": "MXFP4_MOE"}


def file_type(dtype):
    name = f"LLAMA_FTYPE_MOSTLY_{NAMES.get(dtype, dtype.upper())}"
    if not hasattr(lib, name):
        raise SystemExit(f"error: llama.cpp does not know the format {dtype}")
    return getattr(lib, name)


def main():
    source, dtype, to = sys.argv[1:4]
    params = lib.llama_model_quantize_default_params()
    params.ftype = file_type(dtype)
    params.nthread = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    failed = []

    def log(level, text, _):
        if level == 4:  # GGML_LOG_LEVEL_ERROR
            failed.append(text.decode(errors="replace").strip())

    silence = lib.llama_log_callback(log)
    lib.llama_log_set(silence, ctypes.c_void_p(0))
    if lib.llama_model_quantize(source.encode(), to.encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"error: llama.cpp cannot quantise {source} to {dtype}: {' '.join(failed)}")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    main()
