"""What every part of the suite shares: length of the run, seed, the pack, and what must hold after each round."""

import contextlib
import os
import random
import re
import sys
import tempfile
import time
import unittest

from box import DEMO, Box, expert_and_dense_bytes, pack
from load import Load, calm_answers

LONG = os.environ.get("MOESTRO_FAULTS", "short") == "long"
SEED = int(os.environ.get("MOESTRO_FAULTS_SEED") or random.SystemRandom().randrange(1, 10**9))
QUIET_SECONDS_MAX = 20
# What a client may be told although nothing is wrong with its request: who kills workers without pause kills a second
# one under it.
GIVEN_UP = "this request is quarantined: 2 workers died while they computed it"
ANSWERS = 400 if LONG else 12  # of a round that waits for them
EXPERTS_IN_MEMORY = 24  # of 128: steps load and evict all the time


def say(text):
    print(text, file=sys.stderr, flush=True)


class FaultTest(unittest.TestCase):
    """A class of tests has one pack, and remembers what a box without faults answers."""

    @classmethod
    def setUpClass(cls):
        say(f"{cls.__name__}: seed {SEED} (MOESTRO_FAULTS_SEED), {'long' if LONG else 'short'} run")
        cls.dir = tempfile.TemporaryDirectory()
        cls.pack = pack(DEMO, cls.dir.name + "/pack")
        cls.expert, cls.dense = expert_and_dense_bytes(cls.pack)
        cls.dram = cls.dense + EXPERTS_IN_MEMORY * cls.expert
        with Box(cls.pack, cls.dram) as calm:
            cls.expected = calm_answers(calm)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def setUp(self):
        self.random = random.Random(f"{SEED} {self.id()}")

    @contextlib.contextmanager
    def round(self, box, what, clients=6, allowed=lambda message: GIVEN_UP in message):
        """The load runs in the block; after it everything must be as if nothing had happened. A failure says all there
        is to know."""
        load = Load(box, self.expected, clients, allowed)
        problems = []
        try:
            yield load
        except AssertionError as e:
            problems.append(str(e))
        for program in box.programs:
            if program.stopped:
                program.signal(18)  # SIGCONT
        try:
            problems += load.stop()
            if not problems:
                self.settle(box)
        except AssertionError as e:
            problems.append(str(e))
        if problems:
            self.fail(f"seed {SEED}, {what}:\n" + "\n".join(problems[:12]) + "\n" + box.report())

    def serve(self, box, what, answers=ANSWERS, **options):
        """A round of at least so many right answers."""
        with self.round(box, what, **options) as load:
            box.wait_until(lambda: load.answers >= answers or load.wrong, 300, f"{answers} answers")
        return load

    def settle(self, box):
        """No pin, no load and no slot is left over, and every byte in memory is the pack's."""
        end = time.monotonic() + QUIET_SECONDS_MAX
        while True:
            box.revive()
            seen = box.look()
            left = self.left_over(box, seen)
            if not left:
                break
            assert time.monotonic() < end, f"{QUIET_SECONDS_MAX} s after the last request: {left}"
            time.sleep(0.02)
        assert not seen["wrong"], f"wrong bytes in table entries {seen['wrong']}"
        damaged = re.findall(r"all adopted blobs are checked: [1-9]\d* of .*", box.store.log())
        assert not damaged, f"a store that was killed has left wrong bytes behind: {damaged[-1]}"
        assert not seen["overlapping"], f"table entries {seen['overlapping']} lie in others"

    def left_over(self, box, seen):
        if not seen:
            return "there is no arena"
        left = [f"{state}: {seen[state]}" for state in ("loading", "evicting", "adopted") if seen[state]]
        left += [f"pins of slot {s['slot']}: {s['experts']}" for s in seen["slots"] if not self.only_dense_pinned(s)]
        if len(seen["slots"]) != len(box.workers):
            left.append(f"{len(seen['slots'])} slots of {len(box.workers)} workers")
        return "; ".join(left)

    def only_dense_pinned(self, slot):
        return not slot["experts"]
