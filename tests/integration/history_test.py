"""What requests used outlives worker and cluster; a damaged checkpoint is named, and serving goes on without."""

import json
import os
import pathlib
import signal
import sqlite3

from cluster import DEMO, Cluster, DemoTest, main
from redis_box import Redis, needs_redis

TEXTS = [p["ids"] for p in json.loads((DEMO / "reference.json").read_text())["prompts"]]
DEVICE = ("--device", "emulated:vram=6MB,link=2GB", "--predict", "auto", "--no-prefix-cache", "--deterministic")


def history(cluster):
    """The figures of /metrics, without what they have in common."""
    text = cluster.request("GET", "/metrics")[1]
    lines = [line.split() for line in text.splitlines() if line.startswith("moestro_history_")]
    return {name.removeprefix("moestro_history_"): float(value) for name, value in lines}


class History(DemoTest):
    def cluster(self):
        return Cluster(self.pack, *DEVICE, "--state", "sqlite:" + str(self.state))

    def complete(self, cluster, index, tokens=8):
        return cluster.complete(TEXTS[index], max_tokens=tokens, temperature=0, ignore_eos=True,
                                return_token_ids=True)["choices"][0]["token_ids"]

    def setUp(self):
        self.state = pathlib.Path(self.dir.name) / f"{self.id()}.db"

    def test_it_comes_back_and_changes_no_answer(self):
        with self.cluster() as first:
            answers = [self.complete(first, i) for i in range(5)]
            first.wait_until(lambda: history(first)["requests_total"] == 5, what="all five in the history")
            self.assertEqual(history(first)["answers"], 5)
        with self.cluster() as second:
            figures = history(second)
            self.assertEqual((figures["answers"], figures["requests_total"]), (5, 0))
            self.assertEqual([self.complete(second, i) for i in range(5)], answers)

    def test_a_damaged_checkpoint_is_named_and_serving_starts_empty(self):
        with self.cluster() as first:
            answer = self.complete(first, 0)
            first.wait_until(lambda: history(first)["requests_total"] == 1, what="the request in the history")
        with sqlite3.connect(self.state) as database:
            ((name, kept),) = database.execute("SELECT name, bytes FROM blobs").fetchall()
            database.execute("UPDATE blobs SET bytes = ? WHERE name = ?", (kept[:-1] + bytes([kept[-1] ^ 1]), name))
        database.close()
        with self.cluster() as second:
            self.assertEqual(history(second)["answers"], 0)
            self.assertEqual(self.complete(second, 0), answer)
        self.assertIn("history: the checkpoint is not used", second.log_text)

    @needs_redis
    def test_one_that_could_not_be_read_at_the_start_is_not_replaced(self):
        with Redis() as redis:
            started = (self.pack, *DEVICE, "--state", redis.url)
            with Cluster(*started) as first:
                for i in range(3):
                    self.complete(first, i)
                first.wait_until(lambda: history(first)["requests_total"] == 3, what="all three in the history")
            redis.kill()
            with Cluster(*started) as second:
                redis.start()
                second.wait_until(lambda: second.request("GET", "/v1/batches")[0] == 200, what="the state")
                self.complete(second, 4)
                second.wait_until(lambda: history(second)["requests_total"] == 1, what="the request in the history")
            self.assertIn("could not be read at the start", second.log_text)
            with Cluster(*started) as third:
                self.assertEqual(history(third)["answers"], 3)

    def test_two_workers_map_one_copy_and_a_new_orchestrators_after_a_kill(self):
        with Cluster(self.pack, *DEVICE, "--state", "sqlite:" + str(self.state), "--workers", "2") as cluster:
            answers = [self.complete(cluster, i) for i in range(3)]

            def both_map_it():
                figures = history(cluster)
                return (figures['readers{state="mapped"}'], figures['readers{state="copied"}']) == (2, 0)

            cluster.wait_until(both_map_it, what="two workers that map the history")
            self.assertGreater(history(cluster)["shared_bytes"], 100_000)
            first = {self.mapped(worker) for worker in cluster.children("moestro-worker")}
            self.assertEqual(len(first), 1, "one memory for both")
            (orchestrator,) = cluster.children("moestro-orchestrator")
            os.kill(orchestrator, signal.SIGKILL)
            cluster.wait_until(lambda: cluster.children("moestro-orchestrator") not in ([], [orchestrator]),
                               what="another orchestrator")
            cluster.wait_until(lambda: self.served(cluster) and both_map_it(), what="two workers that map its history")
            second = {self.mapped(worker) for worker in cluster.children("moestro-worker")}
            self.assertEqual(len(second), 1)
            self.assertFalse(first & second, "that of the killed one is let go of")
            self.assertEqual([self.complete(cluster, i) for i in range(3)], answers)

    def test_a_worker_that_cannot_map_it_is_sent_it(self):
        with self.cluster() as cluster:
            cluster.wait_until(lambda: history(cluster)['readers{state="mapped"}'] == 1, what="a worker that maps it")
            answer = self.complete(cluster, 0)
            (cluster.dir / "run" / "orchestrator.history").unlink()  # as where a volume has no place for it
            os.kill(cluster.children("moestro-worker")[0], signal.SIGKILL)
            cluster.wait_until(lambda: history(cluster)['readers{state="copied"}'] == 1,
                               what="a worker with a copy of its own")
            self.assertEqual(self.complete(cluster, 0), answer)
        self.assertIn("history: this worker has a copy of its own: nobody hands out memory at", cluster.log_text)

    def mapped(self, worker):
        """The inode of the history that it has mapped, for reading only."""
        lines = [
            line.split()
            for line in pathlib.Path(f"/proc/{worker}/maps").read_text().splitlines()
            if "memfd:moestro-history" in line
        ]
        self.assertEqual([line[1] for line in lines], ["r--s"])
        return lines[0][4]

    def served(self, cluster):
        try:
            return cluster.request("GET", "/health")[0] == 200
        except OSError:
            return False

    def test_a_worker_that_dies_amid_a_request_takes_nothing_of_it(self):
        with self.cluster() as cluster:
            expected = self.complete(cluster, 0, 40)
            tokens = []
            body = {
                "prompt": TEXTS[0], "max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True
            }
            for event in cluster.stream("/v1/completions", body):
                if not tokens:
                    os.kill(cluster.children("moestro-worker")[0], signal.SIGKILL)
                tokens += event["choices"][0].get("token_ids") or []
            self.assertEqual(tokens, expected)
            cluster.wait_until(lambda: history(cluster)["requests_total"] == 2, what="both in the history")
            self.assertEqual(history(cluster)["answers"], 2)


if __name__ == "__main__":
    main()
