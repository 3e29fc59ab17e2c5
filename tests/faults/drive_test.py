"""Drives, packs and memory that fail: what can be made good is made good, what cannot fails whoever needs it, by name;
nobody gets a wrong token."""

import json
import pathlib
import subprocess
import sys
import unittest

from box import Box
from load import PROMPTS, answer
from suite import ANSWERS, SEED, FaultTest, say

LIMITED = [sys.executable, pathlib.Path(__file__).with_name("limited.py")]
EXPERTS_A_LAYER = 16


class Drive(FaultTest):
    def test_reads_that_fail_come_short_or_bring_wrong_bytes(self):
        plan = f"eio=3,flip=1,short=50,eintr=20,eagain=20,seed={SEED}"
        with Box(self.pack, self.dram, ["--inject-read-faults", plan]) as box:
            self.serve(box, plan)
            self.assertGreater(box.figures()["retries"], 0)
            self.assertEqual(box.figures()["bad_blobs"], 0)
            self.assertIn("reads go wrong on purpose", box.store.log())
            self.assertRegex(box.store.log(), r"tried again: .*(Input/output error|checksum|ends early|short)")

    def expert_that_some_need(self):
        """An expert, and the prompts whose answers need it: several, but not all."""
        trace = pathlib.Path(self.dir.name) / "routes.jsonl"
        users = {}
        with Box(self.pack, self.dram, worker_options=["--trace", trace], workers=1) as box:
            for prompt in PROMPTS:
                seen = trace.stat().st_size
                answer(box, prompt)
                box.workers[0].signal(15)  # what it has seen is on disk when it has ended
                box.workers[0].process.wait()
                with open(trace) as file:
                    lines = [json.loads(line) for line in file][1:]
                for layer, experts in ((l, e) for line in lines for l, e in enumerate(line["e"])):
                    for expert in experts:
                        users.setdefault((layer, expert), set()).add(prompt)
                box.workers[0].killed, _ = True, seen
                box.until_serving()
        some = sorted((len(prompts), at) for at, prompts in users.items() if 2 <= len(prompts) <= len(PROMPTS) // 2)
        return some[-1][1], users[some[-1][1]]

    def experts_file(self):
        return next(self.pack.glob("experts-*.bin"))

    def flip(self, offset):
        with open(self.experts_file(), "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 4]))

    def answers_right(self, box, prompt):
        try:
            return answer(box, prompt) == self.expected[prompt]
        except AssertionError:
            return False

    def test_a_flipped_bit_in_the_pack_fails_only_who_needs_it_until_it_can_be_read(self):
        (layer, expert), users = self.expert_that_some_need()
        offset = (layer * EXPERTS_A_LAYER + expert) * self.expert + self.random.randrange(self.expert)
        self.flip(offset)
        broken = True
        try:
            with Box(self.pack, self.dram) as box:
                for prompt in PROMPTS:
                    if prompt not in users:
                        self.assertEqual(answer(box, prompt), self.expected[prompt], prompt)
                        continue
                    with self.assertRaisesRegex(AssertionError,
                                                rf"layer {layer}, expert {expert} .*does not match its checksum"):
                        answer(box, prompt)
                self.assertEqual(box.figures()["unreadable_blobs"], 1)
                self.assertRegex(
                    box.store.log(),
                    rf"layer {layer}, expert {expert} .*does not match its checksum.*requests that need it will fail")
                self.flip(offset)
                broken = False
                box.wait_until(lambda: self.answers_right(box, min(users)), 60, "the expert to be tried again")
                self.serve(box, "after the repair")
                self.assertEqual((box.figures()["bad_blobs"], box.figures()["unreadable_blobs"]), (1, 0))
                self.assertRegex(box.store.log(), rf"layer {layer}, expert {expert} .*can be read again")
        finally:
            if broken:
                self.flip(offset)

    def test_a_pack_file_that_vanishes(self):
        file, aside = self.experts_file(), self.experts_file().with_suffix(".aside")
        with Box(self.pack, self.dram) as box:
            with self.round(box, "a vanished file") as load:
                file.rename(aside)
                try:
                    box.wait_until(lambda: load.answers >= ANSWERS or load.wrong, 300,
                                   "answers from a file that is open")
                    box.store.kill()
                    box.store.start()
                    box.wait_until(lambda: not box.store.alive, what="the end of a store without its file")
                    self.assertGreater(box.store.process.returncode, 0, "no crash")
                    self.assertIn(file.name, box.store.says())
                finally:
                    aside.rename(file)
                box.store.killed = True  # it ended, as it should
                box.store.start()
            self.assertIn("adopted the arena", box.store.says())

    def test_an_arena_with_one_place_for_each_worker(self):
        with Box(self.pack, self.dense + 3 * self.expert) as box:
            self.serve(box, "a full arena")
            self.assertGreater(box.figures()["evictions"], ANSWERS)
            fourth = subprocess.run([*box.workers[0].command, "--name", "w3"][:1] +
                                    [w if w != "w0" else "w3" for w in box.workers[0].command[1:]], capture_output=True,
                                    text=True)
            self.assertNotEqual(fourth.returncode, 0)
            self.assertIn("arena", fourth.stderr)
            self.assertRegex(box.store.log(), "refused a request: .*arena")
            self.assertGreater(box.figures()["refused"], 0)

    def test_a_refused_io_uring(self):
        with Box(self.pack, self.dram, wrap=[*LIMITED, "--no-io-uring"]) as box:
            self.serve(box, "without io_uring")
            self.assertIn("reading with a pool of pread threads instead", box.store.log())
            self.assertEqual(box.figures()["reader"], "pread")

    def test_little_locked_memory(self):
        with Box(self.pack, self.dram, wrap=[*LIMITED, "--memlock", 64 << 10]) as box:
            self.serve(box, "with 64 KiB of locked memory")
            self.assertRegex(box.store.log(), "cannot register the arena as read buffers")
            self.assertFalse(any(drive["registered"] for drive in box.figures()["drives"]))


if __name__ == "__main__":
    say(f"seed {SEED}")
    unittest.main(verbosity=2)
