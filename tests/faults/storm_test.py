"""kill -9 and SIGSTOP/SIGCONT at random moments, of three workers and the store, under load."""

import signal
import time
import unittest

from box import Box
from suite import LONG, SEED, FaultTest, say

STORES = [("as it comes", [])]
if LONG:
    STORES += [("pread", ["--io", "pread", "--policy", "lru"]),
               ("reads go wrong",
                ["--inject-read-faults", f"eio=3,flip=1,short=50,eagain=20,seed={SEED}", "--policy", "random"])]
FAULTS = 2000 // len(STORES) + 1 if LONG else 60
FAULTS_A_ROUND = 20
GAP_SECONDS_MEAN = 0.08
STOP_SECONDS_MAX = 0.4
SILENCE_SECONDS = 2.6  # longer than a worker may be silent before its sequences are computed elsewhere
SILENCES = 0.03        # of all stops


class Storm(FaultTest):
    def test_kills_and_stops_at_random_moments(self):
        for name, options in STORES:
            self.weather(name, options)

    def weather(self, name, options):
        counts = {"kill": 0, "stop": 0, "store": 0, "worker": 0}
        began, rounds, answers, given_up = time.monotonic(), 0, 0, 0
        with Box(self.pack, self.dram, options) as box:
            while counts["kill"] + counts["stop"] < FAULTS:
                rounds += 1
                with self.round(box, f"{name}, round {rounds}") as load:
                    self.storm(box, counts)
                self.assertGreater(load.answers, load.failed)
                answers += load.answers
                given_up += load.failed
                if rounds % 10 == 0:
                    say(f"storm, {name}: {counts['kill'] + counts['stop']} of {FAULTS} faults, "
                        f"{time.monotonic() - began:.0f} s"
                       )
            self.check_named(box, counts)
        say(f"storm, {name}: {counts['kill']} kills and {counts['stop']} stops ({counts['store']} of the store, "
            f"{counts['worker']} of workers) "
            f"in {rounds} rounds, {time.monotonic() - began:.0f} s; {answers} right answers, {given_up} requests "
            f"quarantined after two dead workers; "
            f"{box.ended} programs ended by themselves and were started again")

    def storm(self, box, counts):
        """Faults overlap: a stopped worker outlasts a store, a store dies while a worker starts."""
        wakes = []  # (when, program)
        for _ in range(FAULTS_A_ROUND):
            gap = time.monotonic() + self.random.expovariate(1 / GAP_SECONDS_MEAN)
            while time.monotonic() < gap:
                self.wake(box, wakes)
                box.revive()
                time.sleep(0.002)
            self.strike(box, wakes, counts)
        for _, program in wakes:
            program.signal(signal.SIGCONT)

    def strike(self, box, wakes, counts):
        victim = box.store if self.random.random() < 0.3 else self.random.choice(box.workers)
        counts["store" if victim is box.store else "worker"] += 1
        if self.random.random() < 0.6 or victim.stopped:
            counts["kill"] += 1
            box.note(f"kill {victim.name}")
            victim.kill()
            return
        counts["stop"] += 1
        seconds = SILENCE_SECONDS if self.random.random() < SILENCES else self.random.uniform(0, STOP_SECONDS_MAX)
        box.note(f"stop {victim.name} for {seconds:.3f} s")
        victim.signal(signal.SIGSTOP)
        wakes.append((time.monotonic() + seconds, victim))

    def wake(self, box, wakes):
        now = time.monotonic()
        for when, program in [w for w in wakes if w[0] <= now]:
            box.note(f"continue {program.name}")
            program.signal(signal.SIGCONT)
            wakes.remove((when, program))

    def check_named(self, box, counts):
        """Each kind of death is in a log and in a figure."""
        store_log = box.store.log()
        self.assertIn("adopted the arena that a killed store left", store_log)
        self.assertRegex(store_log, r"worker 'w\d' of slot \d+ is gone: its pins are cleared")
        self.assertGreater(box.metric("moestro_workers_lost_total"), 0)
        self.assertGreater(counts["kill"], counts["stop"] / 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
