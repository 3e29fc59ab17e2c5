"""Hosts that share one Redis and serve different packs under one name: a batch's lines are run with one of them."""

import contextlib
import os
import signal

from batch_box import BatchTest, line
from cluster import DEMO, Cluster, main, moestro, pack
from redis_box import Redis, needs_redis
from shared_batches_test import lines_answered

LINES = 30
TOKENS = 64


class Host(Cluster):
    """Is ready when it has said what it serves: the first to say it has the name."""

    def __enter__(self):
        super().__enter__()
        self.wait_until(lambda: self.request("GET", "/v1/moestro/status")[1]["batches"]["version"])
        return self


@needs_redis
class SharedVersions(BatchTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.int8 = pack(DEMO, cls.dir.name + "/int8", "--experts", "int8")

    def cluster(self, redis, at, lease="2s"):
        return Host(at, "--name", "demo", "--state", redis.url, "--line-lease", lease, "--batch-lines", "4",
                    "--deterministic")

    def answers(self, cluster, batch):
        self.assertEqual(batch["status"], "completed", batch)
        self.assertEqual(batch["request_counts"], {"total": LINES, "completed": LINES, "failed": 0})
        return {a["custom_id"]: a["response"]["body"]["choices"][0]["text"] for a in self.results(cluster, batch)}

    def lines(self):
        return [line(i, tokens=TOKENS) for i in range(LINES)]

    def whole(self, cluster):
        """What this host answers to the lines."""
        body = {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        return {
            one["custom_id"]: cluster.complete(one["body"]["prompt"], **body)["choices"][0]["text"]
            for one in self.lines()
        }

    def left(self, cluster):
        return cluster.request("GET", "/v1/moestro/status")[1]["batches"]["left_to_others"]

    def wait_left(self, cluster, expected):

        def is_so():
            try:
                return bool(self.left(cluster)) == expected
            except OSError:
                return False  # its orchestrator starts again

        cluster.wait_until(is_so, what=f"left_to_others to be {expected}")

    def test_lines_are_run_by_hosts_of_one_pack_and_by_others_when_it_leaves(self):
        with Redis() as redis, contextlib.ExitStack() as others_life, contextlib.ExitStack() as away:
            other = others_life.enter_context(self.cluster(redis, self.int8, "1h"))
            one = away.enter_context(self.cluster(redis, self.pack, "1h"))
            one.wait_until(lambda: self.left(one), what="the version that was first to have the name")
            held = self.left(one)[0]
            self.assertEqual(held["model"], "demo")
            self.assertIn(moestro("inspect", self.int8).stdout.split("identity ")[1].split()[0], held["version"])
            self.assertEqual(len(held["hosts"]), 1)
            expected, others = self.whole(other), self.whole(one)
            self.assertNotEqual(expected, others, "one serves interactive requests with its own pack")
            self.assertEqual(self.answers(one, self.wait_over(one, self.submit(one, self.lines()))), expected)
            self.assertEqual(lines_answered(one), 0)
            problems = one.request("GET", "/v1/moestro/status")[1]["problems"]
            self.assertIn("another version of demo", str(problems))
            away.close()
            self.assertEqual(one.log_text.count("lines of batches of demo are left to"), 1, one.log_text)

            one = away.enter_context(self.cluster(redis, self.pack, "1h"))
            self.wait_left(one, True)
            batch = self.submit(one, self.lines())
            other.wait_until(lambda: self.completed(one, batch) > 0, 60, "a line that is done")
            others_life.close()  # its lease is an hour: it gives its lines and its name up
            self.answers(one, self.wait_over(one, batch, 60))
            self.assertEqual(self.answers(one, self.wait_over(one, self.submit(one, self.lines()))), others)
            self.assertEqual(self.left(one), [])

    def test_the_name_of_a_killed_host_goes_to_another_version_after_its_lease(self):
        with Redis() as redis, self.cluster(redis, self.pack) as one, self.cluster(redis, self.int8) as other:
            self.wait_left(other, True)
            batch = self.submit(one, self.lines())
            one.wait_until(lambda: lines_answered(one) > 0, 60, "lines of its own")
            os.kill(one.process.pid, signal.SIGSTOP)  # `up` starts nothing anew
            os.kill(one.children("moestro-orchestrator")[0], signal.SIGKILL)
            self.answers(other, self.wait_over(other, batch, 60))
            self.assertEqual(self.left(other), [])
            os.kill(one.process.pid, signal.SIGCONT)
            self.wait_left(one, True)

    def test_a_host_that_stood_still_adds_nothing_of_another_version(self):
        with Redis() as redis, self.cluster(redis, self.pack) as one, self.cluster(redis, self.int8) as other:
            self.wait_left(other, True)
            batch = self.submit(one, self.lines())
            one.wait_until(lambda: lines_answered(one) > 0, 60, "lines of its own")
            stopped = one.children("moestro-orchestrator")[0]
            os.kill(stopped, signal.SIGSTOP)
            try:
                self.wait_left(other, False)
                before = self.completed(other, batch)
            finally:
                os.kill(stopped, signal.SIGCONT)
            self.wait_left(one, True)
            self.answers(other, self.wait_over(other, batch, 60))
            self.assertEqual(lines_answered(other), LINES - before)

    def test_redis_may_go_and_come_back_and_the_name_stays(self):
        with Redis() as redis, self.cluster(redis, self.pack) as one, self.cluster(redis, self.int8) as other:
            self.wait_left(other, True)
            batch = self.submit(one, self.lines())
            one.wait_until(lambda: lines_answered(one) > 0, 60, "lines of its own")
            redis.kill()
            for each in (one, other):
                each.wait_until(lambda: each.request("GET", "/v1/moestro/status")[1]["batches"]["stalled"])
            redis.start()
            self.answers(one, self.wait_over(one, batch, 60))
            self.assertEqual(lines_answered(other), 0)

    def test_hosts_are_rolled_from_one_pack_to_the_next_while_a_batch_runs(self):
        with Redis() as redis, self.cluster(redis, self.pack, "1h") as one, self.cluster(redis, self.pack, "1h") as two:
            batch = self.submit(one, self.lines())
            for each in (one, two):
                self.assertEqual(self.left(each), [])
            moestro("store", "replace", f"demo={self.int8}", "--run-dir", one.run_dir)
            self.wait_left(one, True)
            moestro("store", "replace", f"demo={self.int8}", "--run-dir", two.run_dir)
            for each in (one, two):
                self.wait_left(each, False)
            self.answers(one, self.wait_over(one, batch, 60))
            both = self.submit(one, self.lines())
            self.assertEqual(self.answers(two, self.wait_over(two, both, 60)), self.whole(two))
            self.assertEqual(self.whole(one), self.whole(two))


if __name__ == "__main__":
    main()
