"""Decoding of one sequence, or of many at once, with everything (weights, KV cache, store, worker; or llama.cpp with
its mapped file) under one limit of memory.

Ours is a store and an engine on it, in one cgroup; llama.cpp a process in another. One side runs at a time, from caches
without the model's files, on cores that are kept awake."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import memory_limit as limits
from emulated_drive import EmulatedDrive

MIB = 1 << 20
BESIDE_ARENA_MIB = 64  # what store and engine need, of one sequence
PROMPT_TOKENS, STEP_TOKENS = 32, 32  # of a sequence; of a step, at least
KV_TOKENS, KV_BLOCK_TOKENS = 128, 16  # at least
EXACT = ("bf16", "bf16-12bit")
# The ratio aimed at, and llama.cpp's tokens/s on the machine it was aimed at on, whose drive gives 3.7 GB/s.
AIMS = {("mixtral-12gb", 50): (2.2, 0.91), ("mixtral-12gb", 25): (3.0, 0.38), ("qwen3moe-mini", 50): (3.5, 3.16),
        ("qwen3moe-mini", 25): (5.0, 1.47)}
QUANTISED_AIMS = {50: 3.0, 25: 5.0}  # of q4_k_m, by percent: the very same file on both sides
BATCH_AIMS = {("mixtral-12gb", 50, 64): 3.0}  # the same weights as above, by sequences at once
# llama.cpp's settings are tried with this part of the tokens first; those that reach this part of the best one's rate
# run in every round.
TRIAL_SHARE, WORTH_THE_ROUNDS = 6, 0.75


def bytes_per_s(text):
    """The type of an argument."""
    try:
        if 0.01 <= float(text) <= 1000:
            return round(float(text) * 1e9)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"'{text}' is not a speed in GB/s, as 3.7")


class Store:
    """moestro-store on a tmpfs of its own, in the group; a context manager."""

    def __init__(self, args, pack, group, dram, kv_tokens=KV_TOKENS, step_tokens=STEP_TOKENS):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="moestro-bench-"))
        self.arena, self.process, self.log = None, None, open(self.home / "store.log", "w+")
        try:
            (self.home /
             "box.yaml").write_text(f"workers:\n  kv_tokens: {kv_tokens}\norchestrator:\n  step_tokens: {step_tokens}\n"
                                   )  # what the engine takes beside it
            self.arena = limits.TmpfsWithHugePages(self.home / "arena", dram + dram // 16 + 64 * MIB)
            command = [
                pathlib.Path(args.bin).parent / "moestro-store", "--config", self.home / "box.yaml", "--run-dir",
                self.home / "run", "--arena-dir", self.home / "arena", "--model", f"m={pack}", "--dram", dram,
                *args.store_options
            ]
            self.process = subprocess.Popen([str(c) for c in command], stderr=self.log, preexec_fn=group.enter)
            self.wait_until_it_listens()
        except BaseException:
            self.__exit__()
            raise

    @property
    def endpoint(self):
        return f"ipc://{self.home}/run/store.sock"

    def wait_until_it_listens(self):
        while not (self.home / "run" / "store.sock").exists():
            if self.process.poll() is not None:
                raise SystemExit(f"error: moestro-store ended: {(self.home / 'store.log').read_text()[-2000:]}")
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.log.close()
        if self.arena:
            self.arena.close()
        shutil.rmtree(self.home)


def asked(program, request):
    """Its rate, and what it prints at its end. Whatever happens, it does not outlive this."""
    try:
        return float(program.ask(request)), program.end()
    finally:
        program.stop()


def ours(args, side, pack, group, limit, *options):
    """(tokens/s, the rest of what is known); `options`: further ones of `moestro bench engine`"""
    step_tokens = max(STEP_TOKENS, args.sequences)
    kv_tokens = max(KV_TOKENS, args.sequences * whole_blocks(PROMPT_TOKENS + args.tokens))
    with Store(args, pack, group, limit - args.beside_arena, kv_tokens, step_tokens) as store:
        engine = side("moestro bench engine", [
            args.bin, "bench", "engine", "--model", "m", "--store", store.endpoint, "--threads", args.threads,
            "--turns", "--json", "--no-limits", "--prompt", 0, "--generate", args.tokens, "--batch", args.sequences,
            "--depth", PROMPT_TOKENS, "--step-tokens", step_tokens, *options
        ], within=group)
        rate, report = asked(engine, 0)
        report = json.loads(report)["results"][0]
        hits, misses = (report[f"expert_{x}"]["median"] for x in ("hits", "misses"))
        return rate, dict(peak_bytes=group.peak_bytes(), hit_rate=hits / max(1, hits + misses))


def whole_blocks(tokens):
    return -(-tokens // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS


def name_of(percent, sequences):
    return f"decode in {percent} %" if sequences == 1 else f"{sequences} sequences in {percent} %"


def aim_of(shape, dtype, percent, sequences):
    """(the ratio aimed at, llama.cpp's tokens/s where it was aimed at); None where there is none."""
    if sequences > 1:
        return BATCH_AIMS.get((shape, percent, sequences)) if dtype in EXACT else None, None
    if dtype == "q4_k_m":
        return QUANTISED_AIMS.get(percent), None
    return AIMS.get((shape, percent), (None, None)) if dtype in EXACT else (None, None)


@dataclasses.dataclass(frozen=True)
class PeerSetting:
    read_ahead_kib: int
    threads: int

    def __str__(self):
        return f"llama.cpp, read-ahead of {self.read_ahead_kib} KiB, {self.threads} threads"


def theirs(setting, sequences, tokens, side, python, gguf, group):
    with limits.ReadAhead(gguf, setting.read_ahead_kib):
        peer = side("llama.cpp",
                    [python, pathlib.Path(__file__).with_name("peer_llama.py"), gguf, setting.threads],
                    {"PEER_MMAP": "1", "PEER_SEQUENCES": f"{sequences} {PROMPT_TOKENS + tokens}"}, within=group)
        rate, _ = asked(peer, f"decode {sequences} {tokens}")
        return rate, dict(peak_bytes=group.peak_bytes(), greeting=peer.greeting)


def turn(run, files, limit, drive=None):
    """One side alone, in a new group, with no page of the files in memory; `drive`: an emulated one, whose speed holds
    for the group."""
    for file in files:
        limits.drop_from_cache(file)
    group = limits.MemoryLimit(f"moestro-bench-{os.getpid()}", limit)
    hugetlb = limits.hugetlb_bytes()
    try:
        if drive:
            drive.limit(group)
        with limits.AwakeCores():
            rate, more = run(group)
        if limits.hugetlb_bytes() > hugetlb:
            raise SystemExit("error: pages of hugetlbfs came into use, which the limit does not see")
        return rate, more
    finally:
        group.close()


def turn_on_drive(run, model, files, limit, bytes_per_s):
    """A turn of run(model, group), the model on an emulated drive of that speed if there is one."""
    with EmulatedDrive(model, bytes_per_s, limit) if bytes_per_s else contextlib.nullcontext() as drive:
        at = drive.path if drive else model
        return turn(lambda group: run(at, group), (*files, at), limit, drive)


def limit_of(model, whole, percent, beside_arena):
    """That part of a model's bytes."""
    limit = whole * percent // 100
    if limit <= beside_arena:
        raise SystemExit(f"error: {percent} % of {model} are {limit >> 20} MiB, and store and engine need "
                         f"{beside_arena >> 20} MiB in addition to the arena: take a larger model")
    return limit


def compare(args, side, say, models, shape, dtype, percent):
    """One row; `models`: (our pack, their file, their interpreter)."""
    pack, gguf, python = models
    whole = gguf.stat().st_size  # the same for every form of ours
    limit = limit_of(shape, whole, percent, args.beside_arena)

    def measured(who, run, model, when):
        rate, more = turn_on_drive(run, model, (pack, gguf), limit, args.emulate_drive)
        say(f"{shape} {dtype}, {percent} % ({limit / 1e9:.2f} GB), {when}, {who}: {rate:.2f} tokens/s, "
            f"{more['peak_bytes'] / 1e9:.2f} GB at most"
            + (f", {100 * more['hit_rate']:.1f} % hits" if "hit_rate" in more else ""))
        return rate, more

    def peer(setting, tokens):
        return lambda at, group: theirs(setting, args.sequences, tokens, side, python, at, group)

    settings = [PeerSetting(kib, threads) for kib in args.read_ahead for threads in args.peer_threads]
    tried = {
        s: measured(s, peer(s, max(1, args.tokens // TRIAL_SHARE)), gguf, "looking for settings")[0] for s in settings
    }
    runs = {"ours": (lambda at, group: ours(args, side, at, group, limit), pack)}
    runs |= {
        str(s): (peer(s, args.tokens), gguf) for s in settings if tried[s] >= WORTH_THE_ROUNDS * max(tried.values())
    }
    seen = {name: [] for name in runs}
    for r in range(args.rounds):
        for name in list(runs) if r % 2 == 0 else list(runs)[::-1]:
            seen[name].append(measured(name, *runs[name], f"round {r + 1} of {args.rounds}"))
    medians = {name: statistics.median(rate for rate, _ in rates) for name, rates in seen.items()}
    best = max((name for name in runs if name != "ours"), key=medians.get)
    mine, other = medians["ours"], medians[best]
    aim, figure = aim_of(shape, dtype, percent, args.sequences)
    return dict(shape=shape, dtype=dtype, what=name_of(percent, args.sequences), sequences=args.sequences, ours=mine,
                theirs=other, ratio=mine / other, aim=aim, peer_of_its_figure=other / figure if figure else None,
                unit="tokens/s", rounds={name: [rate for rate, _ in rates] for name, rates in seen.items()
                       }, trials={str(s): rate for s, rate in tried.items()}, threads=args.threads, tokens=args.tokens,
                emulated_drive_bytes_per_s=args.emulate_drive, model_bytes=whole, limit_bytes=limit,
                hit_rate=statistics.median(more["hit_rate"] for _, more in seen["ours"]),
                peak_bytes={name: max(more["peak_bytes"] for _, more in rates) for name, rates in seen.items()
                           }, peer=f"{best}; {seen[best][0][1]['greeting']}")
