"""kill -9 at the moments that a protocol gets wrong. The program stops or dies by itself when it is there
(run.fault_points), and the table that it leaves is looked at before anyone goes on: the moment is shown, not hoped
for."""

import signal
import time
import unittest

from box import Box
from suite import LONG, FaultTest, say

KILLS = 100 if LONG else 4
KILLS_A_ROUND = 10 if LONG else 4
REACHED_SECONDS_MAX = 30
SLOW = 2 << 20  # bytes/s: a few reads are under way for a tenth of a second and more


class Moments(FaultTest):
    def die_at(self, box, program, point, visits_max, frozen=()):
        """A new life of `program`, which ends at that point. Returns what its arena looks like then; `frozen` stand
        still meanwhile."""
        program.kill()
        stop = self.random.random() < 0.5
        where = f"{point}={'stop' if stop else 'kill'}:{self.random.randint(1, visits_max)}"
        box.note(f"{program.name} starts with {where}")
        program.start("--fault-points", where)
        self.until_reached(box, program, where)
        for other in frozen:
            other.signal(signal.SIGSTOP)
        seen = box.look()
        program.kill()
        for other in frozen:
            other.signal(signal.SIGCONT)
        self.assertIn(f"at fault point '{point}'", program.says(), where)
        return seen

    def until_reached(self, box, program, where):
        end = time.monotonic() + REACHED_SECONDS_MAX
        while program.alive and program.state() != "T":
            box.revive(but=program)
            self.assertLess(time.monotonic(), end, f"{program.name} does not come by {where}")
            time.sleep(0.001)
        program.killed = True  # by itself or by whoever comes next: it is no crash

    def in_rounds(self, box, what, once, wanted=KILLS):
        """`once` for each kill; after some of them all must be well."""
        began, rounds, kills = time.monotonic(), 0, 0
        while kills < wanted:
            rounds += 1
            with self.round(box, f"{what}, round {rounds}"):
                for _ in range(min(KILLS_A_ROUND, wanted - kills)):
                    kills += 1
                    once(kills)
        say(f"{what}: {kills} kills in {rounds} rounds, {time.monotonic() - began:.0f} s")

    def store_dies(self, point, visits_max, shows):
        with Box(self.pack, self.dram) as box:
            def once(_):
                seen = self.die_at(box, box.store, point, visits_max)
                self.assertTrue(shows(seen), f"at '{point}': {seen}")
                self.assertFalse(seen["wrong"], f"wrong bytes at '{point}'")
            self.in_rounds(box, f"store killed at '{point}'", once)
            self.assertIn("adopted the arena that a killed store left", box.store.log())
            self.assertGreater(box.figures()["adopted"], 0)

    def test_while_an_entry_is_loading(self):
        self.store_dies("loading", 40, lambda seen: seen["loading"])

    def test_while_an_entry_is_evicting(self):
        self.store_dies("evicting", 30, lambda seen: len(seen["evicting"]) == 1)

    def test_between_resident_and_the_wake_up(self):
        """Workers look by themselves every 50 ms, so some of them have seen it before they are stopped: in 12 to 33 of
        100 kills."""
        with Box(self.pack, self.dram) as box:
            unrung = []

            def once(_):
                seen = self.die_at(box, box.store, "resident", 40, frozen=box.workers)
                self.assertFalse(seen["wrong"], "wrong bytes at 'resident'")
                unrung.append(any(self.waits_unrung(slot, seen["resident"]) for slot in seen["slots"]))
            self.in_rounds(box, "store killed at 'resident'", once, wanted=max(KILLS, 24))
            self.assertGreater(3 * sum(unrung), len(unrung), f"a worker's bell was not rung yet: {unrung}")
            self.assertIn("adopted the arena that a killed store left", box.store.log())

    def waits_unrung(self, slot, resident):
        """It has pinned an expert that is there, and its bell has last told it of others."""
        return any(entry in resident and entry != slot["rung"] for entry in slot["experts"])

    def worker_dies(self, point):
        with Box(self.pack, self.dram) as box:
            def once(_):
                self.die_at(box, self.random.choice(box.workers), point, 20)
            self.in_rounds(box, f"worker killed at '{point}'", once)
            self.assertRegex(box.store.log(), r"worker 'w\d' of slot \d+ is gone: its pins are cleared")
            self.assertGreater(box.metric("moestro_workers_lost_total"), 0)

    def test_a_worker_whose_entry_is_loading(self):
        self.worker_dies("asked")

    def test_a_worker_that_has_just_got_an_entry(self):
        self.worker_dies("leased")

    def test_a_worker_that_attaches_when_the_store_dies(self):
        with Box(self.pack, self.dram) as box:
            def once(kills):
                worker = self.random.choice(box.workers)
                worker.kill()
                point = ("offered", "confirming")[kills % 2]
                worker.start("--fault-points", f"{point}=stop:1")
                self.until_reached(box, worker, point)
                box.note(f"{worker.name} is stopped at '{point}'; the store is killed")
                box.store.kill()
                box.store.start()
                box.wait_until(lambda: "ready at" in box.store.says(), what="the store's return")
                lives, worker.killed = worker.starts, False
                worker.signal(signal.SIGCONT)
                box.wait_until(lambda: "registered as worker" in worker.says() or not worker.alive,
                               what=f"{worker.name} at work")
                self.assertEqual((worker.starts, worker.alive), (lives, True),
                                 f"{worker.name} has ended: {worker.says()}")
            self.in_rounds(box, "store killed while a worker attaches", once)

    def test_with_a_worker_stopped_while_it_holds_pins(self):
        with Box(self.pack, self.dram) as box:
            def once(kills):
                worker = self.random.choice(box.workers)
                worker.kill()
                worker.start("--fault-points", f"leased=stop:{self.random.randint(1, 20)}")
                self.until_reached(box, worker, "leased")
                worker.stopped = True
                before = box.look()
                held = self.pins_of(before, worker)
                in_use = set(held) & set(before["resident"])  # the others are wishes: pinned, and not there yet
                self.assertTrue(in_use, f"{worker.name} has stopped with nothing in use")
                box.note(f"{worker.name} is stopped and holds {held}; the store is killed")
                box.store.kill()
                box.store.start()
                box.wait_until(lambda: "ready at" in box.store.says(), what="the store's return")
                seen = box.look()
                self.assertEqual(self.pins_of(seen, worker), held, "a stopped worker keeps its pins")
                self.assertFalse(in_use - set(seen["resident"]) - set(seen["adopted"]),
                                 f"of what it has in use, {in_use}, something is gone: {seen}")
                if kills % 2:
                    box.note(f"{worker.name} is killed too")
                    worker.kill()
                else:
                    worker.killed = False
                    worker.signal(signal.SIGCONT)
            self.in_rounds(box, "store killed with a worker stopped that holds pins", once)

    def pins_of(self, seen, worker):
        return [entry for slot in seen["slots"] if slot["client"] == worker.name for entry in slot["experts"]]

    def test_during_adoption(self):
        with Box(self.pack, self.dram) as box:
            self.store_dies_in_adoption(box)

    def store_dies_in_adoption(self, box, limit=lambda bytes_per_s: None):
        def once(kills):
            limit(SLOW)
            self.die_at(box, box.store, "loading", 20)  # leaves reads that are still under way
            point, visits = [("adopting", 4096), ("adopted", 1), ("checking", 8), (None, 0)][kills % 4]
            if point is None:
                self.die_somewhere(box)
            else:
                seen = self.die_at(box, box.store, point, visits)
                self.assertTrue(point == "adopting" or seen["adopted"], f"at '{point}': {seen}")
            limit(0)
        self.in_rounds(box, "store killed during adoption", once)

    def die_somewhere(self, box):
        """At any time between its start and its first messages."""
        box.store.start()
        seconds = self.random.uniform(0, 0.4)
        box.note(f"store starts and has {seconds:.3f} s to live")
        box.store.process.poll()
        time.sleep(seconds)
        box.store.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
