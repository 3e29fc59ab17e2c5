#!/usr/bin/env python3
"""Runs llama.cpp (through llama-cpp-python's C interface) on a GGUF model, one measurement for every line on stdin:

    prefill TOKENS          one prompt
    decode SEQUENCES GEN    after a prompt of 32 tokens each

and answers with tokens per second, a line each. The first line it prints is "ready VERSION"."""

import ctypes
import random
import sys
import time

import llama_cpp as lib

PROMPT = 32


class Peer:
    def __init__(self, path, threads):
        lib.llama_backend_init()
        self.silence = lib.llama_log_callback(lambda *_: None)  # kept: the library holds on to it
        lib.llama_log_set(self.silence, ctypes.c_void_p(0))
        params = lib.llama_model_default_params()
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"error: llama.cpp cannot load {path}")
        context = lib.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max = 32 * 160, 1024, 512, 32
        context.n_threads = context.n_threads_batch = threads
        context.kv_unified = True
        self.context = lib.llama_init_from_model(self.model, context)
        if not self.context:
            raise SystemExit("error: llama.cpp cannot make a context")
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.random = random.Random(7)
        self.batch = lib.llama_batch_init(1024, 0, 1)

    def run(self, entries):
        """entries: (sequence, position, wants logits)."""
        b = self.batch
        b.n_tokens = len(entries)
        for i, (sequence, position, logits) in enumerate(entries):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = self.random.randrange(self.vocab), position, 1, logits
            b.seq_id[i][0] = sequence
        if lib.llama_decode(self.context, b) != 0:
            raise SystemExit("error: llama_decode failed")
        lib.llama_synchronize(self.context)

    def forget(self):
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)

    def prefill(self, tokens):
        self.forget()
        begin = time.perf_counter()
        self.run([(0, i, i + 1 == tokens) for i in range(tokens)])
        return tokens / (time.perf_counter() - begin)

    def decode(self, sequences, gen):
        self.forget()
        for s in range(sequences):
            self.run([(s, i, i + 1 == PROMPT) for i in range(PROMPT)])
        begin = time.perf_counter()
        for i in range(gen):
            self.run([(s, PROMPT + i, True) for s in range(sequences)])
        return sequences * gen / (time.perf_counter() - begin)


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    peer = Peer(path, threads)
    print("ready", lib.__version__, flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        print(getattr(peer, what)(*map(int, numbers)), flush=True)


if __name__ == "__main__":
    main()
