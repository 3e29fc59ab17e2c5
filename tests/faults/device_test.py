"""A worker whose device has a memory of its own: experts are on their way to it when the store, the worker or both
die."""

import concurrent.futures
import contextlib
import time
import unittest

from box import Box
from load import PROMPTS, answer
from suite import LONG, SEED, FaultTest, say

ROUNDS = 200 if LONG else 6
STREAMS, TOKENS = 8, 150
DRAM = 8 << 20
DEVICE = ["--device", "emulated:vram=1MiB,link=1GiB"]
AWAY_SECONDS_MAX = 0.5
ROUND_SECONDS_MAX = 90
STORE_WAIT_SECONDS = 2


@contextlib.contextmanager
def streams(box):
    """The futures of all answers, which have just been asked for."""
    pool = concurrent.futures.ThreadPoolExecutor(STREAMS)
    try:
        yield [pool.submit(answer, box, prompt, TOKENS) for prompt in PROMPTS[:STREAMS]]
    finally:
        pool.shutdown(wait=False)


class Device(FaultTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.dram = DRAM
        with cls.box() as calm:
            began = time.monotonic()
            with streams(calm) as answers:
                cls.whole = [a.result() for a in answers]
            cls.seconds = time.monotonic() - began
        assert all(len(ids) == TOKENS for ids in cls.whole)

    @classmethod
    def box(cls, *worker_options):
        return Box(cls.pack, cls.dram, worker_options=DEVICE + list(worker_options), workers=1)

    def test_streams_are_whole_whatever_is_killed(self):
        began, kills = time.monotonic(), {"store": 0, "worker": 0, "both": 0}
        with self.box() as box:
            for number in range(ROUNDS):
                what = list(kills)[number % len(kills)]
                kills[what] += 1
                self.one_round(box, what, f"round {number + 1}, {what} killed")
                if (number + 1) % 20 == 0:
                    say(f"device: {number + 1} of {ROUNDS} rounds, {time.monotonic() - began:.0f} s")
        say(f"device: {ROUNDS} rounds of {STREAMS} streams, killed {kills}, all whole and equal, "
            f"{time.monotonic() - began:.0f} s")

    def one_round(self, box, what, title):
        victims = {"store": [box.store], "worker": [box.workers[0]], "both": [box.store, box.workers[0]]}[what]
        self.random.shuffle(victims)
        try:
            with streams(box) as answers:
                time.sleep(self.random.uniform(0, self.seconds))
                for victim in victims:
                    box.note(f"{title}: kill {victim.name}")
                    victim.kill()
                    time.sleep(self.random.uniform(0, AWAY_SECONDS_MAX / 2))
                time.sleep(self.random.uniform(0, AWAY_SECONDS_MAX))
                box.revive()
                _, hanging = concurrent.futures.wait(answers, ROUND_SECONDS_MAX)
                assert not hanging, f"{len(hanging)} of {STREAMS} streams hang"
                for prompt, ids, whole in zip(PROMPTS, [a.result() for a in answers], self.whole):
                    assert ids == whole, f"'{prompt}': {ids} instead of {whole}"
            box.until_serving()
            self.settle(box)
        except AssertionError as e:
            self.fail(f"seed {SEED}, {title}: {e}\n{box.report()}")

    def test_a_store_that_never_returns_fails_what_needs_it_by_name(self):
        with self.box("--store-wait", f"{STORE_WAIT_SECONDS}s") as box:
            try:
                with streams(box) as answers:
                    time.sleep(self.seconds / 3)
                    box.store.kill()
                    box.wait_until(lambda: self.store_is_missed(box), 10, "a problem in the status, and in /health")
                    began = time.monotonic()
                    _, hanging = concurrent.futures.wait(answers, ROUND_SECONDS_MAX)
                    self.assertFalse(hanging, "they hang")
                    self.assertLess(time.monotonic() - began, STORE_WAIT_SECONDS + 10)
                    failures = [str(a.exception()) for a in answers if a.exception()]
                    self.assertGreater(len(failures), 0, "not all experts are in memory")
                    for failure in failures:
                        self.assertIn("no store has come back", failure)
                    for ids, whole in zip([a.exception() or a.result() for a in answers], self.whole):
                        self.assertTrue(isinstance(ids, Exception) or ids == whole, ids)
                box.revive()
                box.wait_until(lambda: not self.store_is_missed(box), 20, "a status without problems")
                box.until_serving()
                with streams(box) as answers:
                    self.assertEqual([a.result() for a in answers], self.whole)
            except AssertionError as e:
                self.fail(f"{e}\n{box.report()}")

    def store_is_missed(self, box):
        status, health = box.request("GET", "/health")
        self.assertEqual(status, 200, "what is in memory is served")
        problems = [p["what"] for p in box.served_status()["problems"]]
        missed = any("store does not answer" in p for p in problems)
        return missed and health["status"] == "degraded" and health["problems"] == problems


if __name__ == "__main__":
    unittest.main(verbosity=2)
