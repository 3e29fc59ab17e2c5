"""Random histories of one store that three models share: packs are added, replaced, removed, damaged and repaired while
reads fail, and programs are killed, stopped or shut down for a warm start. The same on simulated processes, with more
events a second, is tests/store/store_histories_test.cc."""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from box import BIN, Box, Program, moestro, pack
from cluster import DEMO, Served
from load import Load, calm_answers
from suite import GIVEN_UP, LONG, SEED, FaultTest, say

SECONDS = float(os.environ.get("MOESTRO_FAULTS_SECONDS", 1800 if LONG else 25))
EVENTS_A_ROUND = 14
GAP_SECONDS_MEAN = 0.25
STOP_SECONDS_MAX = 0.5
SHUTDOWN_SECONDS_MAX = 20
ANSWERS_A_CALM_ROUND = 12
RETIRED_MAX = 8  # packs that are served no more, and whose entries hold bytes of others
# Of a damaged file; the second, where the last of three tries met an injected fault.
DAMAGED = ("does not match its checksum", "Input/output error")
REPLACED = "the model's pack was replaced while this request was answered"


class AnyVersion(Load):
    """An answer is right if one version of the pack gives it, whole."""

    def right(self, prompt):
        return [version[prompt] for version in self.expected]


class OneModel(Served):
    """One model with its orchestrator and its worker; `versions`: packs that it may be served from."""

    def __init__(self, box, name, versions):
        self.name, self.versions, self.now = name, versions, 0
        self.may_serve = {str(versions[0])}  # more than one where nobody heard whether a change was made
        self.host, self.port, self.box = "127.0.0.1", None, box
        self.run = box.dir / name
        store = f"ipc://{box.dir}/run/store.sock"
        log = box.dir / "logs"
        self.worker = Program(f"{name}-worker", [
            BIN / "moestro-worker", "--model", name, "--name", f"{name}-0", "--threads", 1, "--deterministic",
            "--kv-tokens", 2048, "--store", store, "--orchestrator", f"ipc://{self.run}/orchestrator.sock"
        ], log / f"{name}-worker.log")
        self.orchestrator = Program(f"{name}-orchestrator", [
            BIN / "moestro-orchestrator", "--model", f"{name}={versions[0]}", "--http", "127.0.0.1:0", "--run-dir",
            self.run, "--store", store
        ], log / f"{name}-orchestrator.log")

    def wait_for_port(self):
        self.wait_until((self.run / "http.port").exists, 60, f"the port of {self.name}")
        self.port = int((self.run / "http.port").read_text())

    def revive(self):
        self.box.revive()

    def replace(self, to):
        """Whether the store said that it did."""
        pack_dir = str(self.versions[to])
        if self.box.change("replace", f"{self.name}={pack_dir}").returncode != 0:
            self.may_serve.add(pack_dir)
            return False
        self.now, self.may_serve = to, {pack_dir}
        return True


class SharedBox(Box):
    """A store with all models, each with a worker and an orchestrator of its own."""

    def __init__(self, packs, dram, store_options):
        super().__init__(packs["demo"][0], dram, store_options, workers=0)
        self.models = [OneModel(self, name, versions) for name, versions in packs.items()]
        for model in self.models[1:]:
            self.store.command += ["--model", f"{model.name}={model.versions[0]}"]
        self.workers = [m.worker for m in self.models]
        self.programs = [self.store, *self.workers, *(m.orchestrator for m in self.models)]

    def __enter__(self):
        try:
            for program in self.programs:
                program.start()
            for model in self.models:
                model.wait_for_port()
            self.until_serving()
        except BaseException:
            say(self.report())
            self.__exit__()
            raise
        return self

    def until_serving(self):
        def serving():
            self.revive()
            with_worker = all(any(w["last_heard_s"] < 2 for w in served_status(m).get("workers", []))
                              for m in self.models)
            return with_worker and len(self.look().get("slots", [])) == len(self.models)
        self.wait_until(serving, 60, "a box with all its workers")

    def served_status(self):
        return {m.name: served_status(m) for m in self.models}

    def change(self, *words):
        """`moestro store ...`; its error, which is none if the store was away or did it."""
        self.note("store " + " ".join(words))
        done = moestro("store", *words, "--run-dir", self.dir / "run", check=False)
        self.note(f"  {done.returncode}: {(done.stdout + done.stderr).strip()[:300]}")
        return done


def served_status(model):
    try:
        return model.request("GET", "/v1/moestro/status")[1]
    except OSError:
        return {}


class Histories(FaultTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.dir.name
        twin = pathlib.Path(shutil.copytree(cls.pack, f"{folder}/twin"))  # the same bytes in other files
        int8 = pack(DEMO, f"{folder}/int8", "--experts", "int8")  # the same dense weights beside other experts
        cls.spare = shutil.copytree(cls.pack, f"{folder}/spare")
        cls.packs = {"demo": [cls.pack], "twin": [twin, int8], "small": [int8]}
        # The dense weights lie there once for equal bytes, but must fit while nobody knows yet that they are equal.
        cls.dram = 4 * cls.dense + 30 * cls.expert
        with Box(int8, cls.dram) as calm:
            cls.dense_blobs = calm.look()["slots"][0]["dense"]
            cls.answers = {str(cls.pack): cls.expected, str(twin): cls.expected, str(int8): calm_answers(calm)}
        assert cls.answers[str(int8)] != cls.expected

    def test_random_histories(self):
        began, rounds, answers, failed, self.counts = time.monotonic(), 0, 0, 0, {}
        faults = f"eio=2,flip=1,short=30,eagain=10,seed={SEED}"
        with SharedBox(self.packs, self.dram, ["--inject-read-faults", faults, "--scrub", "64MiB"]) as box:
            self.damaged = {}
            while rounds == 0 or time.monotonic() - began < SECONDS:
                rounds += 1
                right, refused = self.one_round(box, f"round {rounds}")
                answers, failed = answers + right, failed + refused
                if rounds % 10 == 0:
                    say(f"histories: {rounds} rounds, {time.monotonic() - began:.0f} s, {self.counts}")
            self.assertGreater(answers, failed)
        say(f"histories: {rounds} rounds, {sum(self.counts.values())} events {self.counts}, {answers} right answers, "
            f"{failed} requests failed by name, {time.monotonic() - began:.0f} s")

    def one_round(self, box, title):
        box.note(f"=== {title}")
        began, problems = time.monotonic(), []
        loads = [self.load(model) for model in box.models]
        try:
            for _ in range(EVENTS_A_ROUND):
                self.pause(box, self.random.expovariate(1 / GAP_SECONDS_MEAN))
                self.strike(box)
            self.mend(box)
        except AssertionError as e:
            problems.append(str(e))
        for program in box.programs:
            if program.stopped:
                program.signal(signal.SIGCONT)
        try:
            for load in loads:
                problems += load.stop()
            if not problems:
                self.settle(box)
                self.calm(box)
        except AssertionError as e:
            problems.append(str(e))
        if problems:
            self.fail(f"seed {SEED}, {title}, {time.monotonic() - began:.1f} s:\n" + "\n".join(problems[:12]) + "\n" +
                      "\n".join(box.events[-80:]) + "\n" + box.report())
        return sum(l.answers for l in loads), sum(l.failed for l in loads)

    def load(self, model, allowed=lambda message: any(m in message for m in (GIVEN_UP, *DAMAGED, REPLACED))):
        return AnyVersion(model, [self.answers[str(v)] for v in model.versions], 2, allowed)

    @staticmethod
    def pause(box, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            box.revive()
            time.sleep(0.01)

    def strike(self, box):
        what = self.random.choices([self.kill, self.stop, self.shut_down, self.damage, self.repair, self.replace,
                                    self.add_or_remove], [5, 2, 1, 2, 2, 3, 3])[0]
        self.counts[what.__name__] = self.counts.get(what.__name__, 0) + 1
        what(box)

    def kill(self, box):
        victims = [box.store if self.random.random() < 0.4 else self.random.choice(box.workers)]
        if self.random.random() < 0.2:
            victims = [box.store, self.random.choice(box.workers)]
        for victim in victims:
            box.note(f"kill {victim.name}")
            victim.kill()

    def stop(self, box):
        victim = self.random.choice([box.store, *box.workers])
        seconds = self.random.uniform(0, STOP_SECONDS_MAX)
        box.note(f"stop {victim.name} for {seconds:.3f} s")
        victim.signal(signal.SIGSTOP)
        self.pause(box, seconds)
        victim.signal(signal.SIGCONT)

    def shut_down(self, box):
        """The store writes its warm set; the next one reads it while everything else goes on."""
        if not box.store.alive:
            return
        box.note("shut the store down")
        box.store.signal(signal.SIGTERM)
        try:
            box.store.process.wait(SHUTDOWN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the store does not end within {SHUTDOWN_SECONDS_MAX} s") from None
        assert box.store.process.returncode == 0, box.store.says()[-500:]
        for model in box.models:  # the next one has forgotten what was changed
            model.may_serve.add(str(model.versions[0]))
        box.store.start()

    def damage(self, box):
        """Flips a bit of an expert's file. What is in memory is not touched: it must not matter until it is read."""
        model = self.random.choice(box.models)
        pack_dir = self.random.choice(model.versions)
        file = next(pack_dir.glob("experts-*.bin"))
        if str(file) in self.damaged:
            return
        offset = self.random.randrange(file.stat().st_size)
        box.note(f"damage {file} at {offset}")
        self.flip(file, offset)
        self.damaged[str(file)] = offset

    @staticmethod
    def flip(file, offset):
        with open(file, "r+b") as f:
            f.seek(offset)
            byte = f.read(1)[0]
            f.seek(offset)
            f.write(bytes([byte ^ 4]))

    def repair(self, box):
        if not self.damaged:
            return
        file = self.random.choice(sorted(self.damaged))
        self.flip(file, self.damaged.pop(file))
        box.note(f"repair {file}")
        for model in box.models:  # any of them may have met it: equal bytes are one blob
            model.replace(model.now)

    def replace(self, box):
        model = self.random.choice(box.models)
        model.replace(self.random.randrange(len(model.versions)))

    def add_or_remove(self, box):
        if self.random.random() < 0.5:
            box.change("add", f"spare={self.spare}")
        else:
            box.change("remove", "spare")

    def mend(self, box):
        """Every file is right again, and every model is served from its first version."""
        for file, offset in self.damaged.items():
            self.flip(file, offset)
        self.damaged.clear()
        for program in box.programs:
            if program.stopped:
                program.signal(signal.SIGCONT)
        box.until_serving()
        self.check_versions(box)
        for model in box.models:
            box.wait_until(lambda m=model: m.replace(0), 20, f"{model.name} from its first pack")
        box.change("remove", "spare")

    @staticmethod
    def check_versions(box):
        """However often the store was killed, it serves what it was last told to."""
        served = {m["name"]: m["pack"] for m in box.figures()["models"] if not m["retired"]}
        for model in box.models:
            assert served.get(model.name) in model.may_serve, f"{model.name}: {served}, not {model.may_serve}"

    @staticmethod
    def in_use(box):
        models = box.figures().get("models", [])
        return sorted((m["name"], m["workers"]) for m in models if m["workers"] > 0 or not m["retired"])

    def only_dense_pinned(self, slot):
        """Equal dense weights lie in entries of any of the packs. arena_look knows one pack and takes other entries for
        experts."""
        return slot["dense"] + len(slot["experts"]) == self.dense_blobs

    def calm(self, box):
        """Nothing is left over, and every model answers as before any fault."""
        box.until_serving()
        box.wait_until(lambda: not any(w["outdated"] for m in box.models for w in served_status(m)["workers"]), 60,
                       "workers of the versions that are served")
        # A version that was replaced stays as long as it has workers, or its entries hold bytes that others share.
        # Until an orchestrator has heard of another version, it calls no worker outdated.
        wanted = [(name, 1) for name in sorted(self.packs)]
        box.wait_until(lambda: self.in_use(box) == wanted, 20, f"these models with so many workers, alone: {wanted}")
        kept = [m["pack"] for m in box.figures()["models"] if m["retired"]]
        assert len(kept) <= RETIRED_MAX, f"too many packs that nobody uses: {kept}"
        for model in box.models:
            load = AnyVersion(model, [self.answers[str(model.versions[0])]], 2)
            box.wait_until(lambda l=load: l.answers >= ANSWERS_A_CALM_ROUND or l.wrong, 60, "answers after the storm")
            wrong = load.stop()
            assert not wrong, f"{model.name} after everything was repaired: {wrong[:3]}"


if __name__ == "__main__":
    unittest.main(verbosity=2)
