#!/usr/bin/env python3
"""Runs llama.cpp (through llama-cpp-python's C interface) on a GGUF model, one measurement for every line on stdin:

    prefill TOKENS             one prompt, logits of its last token
    decode SEQUENCES TOKENS    after a prompt of 32 tokens each, logits of every token; nothing is sampled
    choose MEASUREMENT         runs the measurement in every configuration, twice, and takes the fastest from then on

and answers a line each: tokens per second, or the configuration chosen. The first line it prints is "ready VERSION |
what it was compiled with".

PEER_CONFIGURATION in the environment: the only configuration there is. PEER_MMAP: weights in the mapped file.
PEER_SEQUENCES, "SEQUENCES TOKENS": one context with room for so many sequences of so many tokens, for where memory is
short."""

import ctypes
import os
import random
import sys
import time

import llama_cpp as lib

PROMPT, SEQUENCES_MAX, LENGTH_MAX, BATCH, STEP = 32, 32, 512, 1024, 512
# With and without flash attention; one KV cache for all sequences, or one each.
CONFIGURATIONS = {
    f"flash attention {'on' if flash else 'off'}, {'one cache' if unified else 'a cache each'}": (flash, unified)
    for flash in (1, 0)
    for unified in (True, False)
}


class Peer:
    def __init__(self, path, threads):
        lib.llama_backend_init()
        self.silence = lib.llama_log_callback(self.log)  # kept: the library holds on to it
        lib.llama_log_set(self.silence, ctypes.c_void_p(0))
        params = lib.llama_model_default_params()
        # Into memory of its own, which glibc backs with huge pages when told to (see bench_peers); a mapped file has
        # small ones.
        params.load_mode = lib.LLAMA_LOAD_MODE_MMAP if os.environ.get("PEER_MMAP") else lib.LLAMA_LOAD_MODE_NONE
        # Nor a second form of them, which would be memory of its own: more than there is under a limit.
        params.use_extra_bufts = params.load_mode != lib.LLAMA_LOAD_MODE_MMAP
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"error: llama.cpp cannot load {path}")
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        short = os.environ.get("PEER_SEQUENCES")
        self.sequences, length = map(int, short.split()) if short else (SEQUENCES_MAX, LENGTH_MAX)
        self.context_length = min(length, lib.llama_model_n_ctx_train(self.model))
        self.unified_length = self.context_length if short else 160  # of each sequence, on average
        only = os.environ.get("PEER_CONFIGURATION")
        names = [only] if only else list(CONFIGURATIONS)[: 1 if short else None]
        self.contexts = {name: self.new_context(threads, *CONFIGURATIONS[name]) for name in names}
        self.chosen = {}
        self.random = random.Random(7)
        self.batch = lib.llama_batch_init(BATCH, 0, 1)

    def log(self, level, text, _):
        if os.environ.get("PEER_LOG") or level == 4:  # GGML_LOG_LEVEL_ERROR
            print(text.decode(errors="replace"), end="", file=sys.stderr, flush=True)

    def new_context(self, threads, flash, unified):
        c = lib.llama_context_default_params()
        c.n_seq_max = self.sequences
        c.n_ctx = self.sequences * (self.unified_length if unified else self.context_length)
        c.n_batch, c.n_ubatch = (PROMPT, PROMPT) if self.sequences == 1 else (BATCH, STEP)
        c.n_threads = c.n_threads_batch = threads
        c.flash_attn_type, c.kv_unified = flash, unified
        context = lib.llama_init_from_model(self.model, c)
        if not context:
            raise SystemExit("error: llama.cpp cannot make a context")
        return context

    def run(self, context, entries):
        """entries: (sequence, position, wants logits)."""
        b = self.batch
        b.n_tokens = len(entries)
        for i, (sequence, position, logits) in enumerate(entries):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = self.random.randrange(self.vocab), position, 1, logits
            b.seq_id[i][0] = sequence
        begin = time.perf_counter()
        if lib.llama_decode(context, b) != 0:
            raise SystemExit("error: llama_decode failed")
        lib.llama_synchronize(context)
        return time.perf_counter() - begin

    def prefill(self, context, tokens):
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        return tokens / self.run(context, [(0, i, i + 1 == tokens) for i in range(tokens)])

    def decode(self, context, sequences, tokens):
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        prompts = [(s, i, i + 1 == PROMPT) for s in range(sequences) for i in range(PROMPT)]
        for at in range(0, len(prompts), BATCH):
            self.run(context, prompts[at:at + BATCH])
        return sequences * tokens / sum(
            self.run(context, [(s, PROMPT + i, True) for s in range(sequences)]) for i in range(tokens))

    def measure(self, request, context):
        what, *numbers = request.split()
        return {"prefill": self.prefill, "decode": self.decode}[what](context, *map(int, numbers))

    def choose(self, request):
        best = {name: 0 for name in self.contexts}
        for _ in range(2):
            for name, context in self.contexts.items():
                best[name] = max(best[name], self.measure(request, context))
        self.chosen[request] = max(best, key=best.get)
        return self.chosen[request]

    def answer(self, line):
        if line.startswith("choose "):
            return self.choose(line.removeprefix("choose "))
        return self.measure(line, self.contexts[self.chosen.get(line, next(iter(self.contexts)))])


def main():
    peer = Peer(sys.argv[1], int(sys.argv[2]))
    print("ready", lib.__version__, "|", lib.llama_print_system_info().decode().strip(" |\n"), flush=True)
    for line in sys.stdin:
        print(peer.answer(line.strip()), flush=True)


if __name__ == "__main__":
    main()
