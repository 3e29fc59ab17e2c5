"""Several orchestrators on one Redis: whoever dies, and if it is Redis itself, every line has one result.
MOESTRO_SHARED_LINES and _KILLS make it longer."""

import contextlib
import json
import os
import random
import re
import signal
import sys

from batch_box import BatchTest, line
from cluster import Cluster, main
from redis_box import LossyWay, Redis, needs_redis

LINES = int(os.environ.get("MOESTRO_SHARED_LINES", "400"))
KILLS = int(os.environ.get("MOESTRO_SHARED_KILLS", "4"))
SEED = int(os.environ.get("MOESTRO_FAULTS_SEED", "11"))
LEASE = "2s"


def lines_answered(cluster):
    text = cluster.request("GET", "/metrics")[1]
    return int(float(re.search(r'moestro_batch_lines_total\{[^}]*result="ok"[^}]*\} (\S+)', text)[1]))


@needs_redis
class SharedBatches(BatchTest):
    def cluster(self, redis, *options):
        return Cluster(self.pack, "--state", redis.url, "--line-lease", LEASE, *options)

    def problems(self, cluster):
        return cluster.request("GET", "/v1/moestro/status")[1]["problems"]

    def check_each_once(self, cluster, batch, lines):
        self.assertEqual(batch["status"], "completed", batch)
        self.assertEqual(batch["request_counts"], {"total": len(lines), "completed": len(lines), "failed": 0})
        answers = self.results(cluster, batch)
        self.assertEqual(sorted(a["custom_id"] for a in answers), sorted(one["custom_id"] for one in lines))

    def test_two_share_a_batch_and_either_may_die(self):
        chance = random.Random(SEED)
        lines = [line(i, tokens=96) for i in range(LINES)]  # enough that it is not over before the second kill
        with Redis() as redis, self.cluster(redis) as one, self.cluster(redis) as other:
            batch = self.submit(one, lines)
            self.assertEqual(self.look(other, batch)["id"], batch, "the other does not know it")
            one.wait_until(lambda: min(lines_answered(each) for each in (one, other)) > 0, 60, "lines of both")
            kills = 0
            for kill in range(KILLS):
                victim, witness = ((one, other), (other, one))[kill % 2]
                aim = min(self.completed(witness, batch) + chance.randrange(1, LINES // (2 * KILLS)), LINES)
                witness.wait_until(lambda: self.completed(witness, batch) >= aim, 120, "progress")
                if self.look(witness, batch)["status"] == "completed":
                    break
                self.kill_one(victim, "moestro-orchestrator")
                kills += 1
            self.assertGreaterEqual(kills, 2, "the batch was over too soon")
            over = self.wait_over(other, batch, 300)
            self.check_each_once(one, over, lines)
            print(f"{LINES} lines, {kills} orchestrators killed", file=sys.stderr)

    def test_one_that_starts_again_goes_on_at_once(self):
        lines = [line(i, tokens=64) for i in range(60)]
        with Redis() as redis, Cluster(self.pack, "--state", redis.url, "--line-lease", "1h") as cluster:
            batch = self.submit(cluster, lines)
            cluster.wait_until(lambda: lines_answered(cluster) > 0, 60, "lines that are done")
            self.kill_one(cluster, "moestro-orchestrator")
            self.check_each_once(cluster, self.wait_over(cluster, batch, 120), lines)

    def test_the_lines_of_one_that_stays_away_are_done_by_the_other(self):
        lines = [line(i, tokens=32) for i in range(150)]
        with Redis() as redis, self.cluster(redis) as other, contextlib.ExitStack() as away:
            one = away.enter_context(self.cluster(redis))
            batch = self.submit(one, lines)
            one.wait_until(lambda: lines_answered(one) > 0, 60, "lines of its own")
            os.kill(one.process.pid, signal.SIGSTOP)  # `up` starts nothing anew
            os.kill(one.children("moestro-orchestrator")[0], signal.SIGKILL)
            over = self.wait_over(other, batch, 300)
            self.check_each_once(other, over, lines)
            os.kill(one.process.pid, signal.SIGCONT)

    def test_one_that_stood_still_adds_nothing_when_it_goes_on(self):
        lines = [line(i, tokens=32) for i in range(150)]
        with Redis() as redis, self.cluster(redis) as one, self.cluster(redis) as other:
            batch = self.submit(one, lines)
            one.wait_until(lambda: lines_answered(one) > 0, 60, "lines of its own")
            stopped = one.children("moestro-orchestrator")[0]
            os.kill(stopped, signal.SIGSTOP)
            try:
                over = self.wait_over(other, batch, 300)
            finally:
                os.kill(stopped, signal.SIGCONT)
            self.check_each_once(other, over, lines)
            one.wait_until(lambda: one.request("GET", "/v1/moestro/status")[1]["batches"]["lines"]["in_flight"] == 0,
                           60, "its lines to be let go")
            self.assertEqual(self.look(one, batch)["request_counts"], over["request_counts"])
            self.check_each_once(one, self.look(one, batch), lines)

    def test_redis_may_go_and_come_back(self):
        lines = [line(i) for i in range(200)]
        with Redis() as redis, self.cluster(redis) as cluster:
            batch = self.submit(cluster, lines)
            for kill in range(3):
                aim = self.completed(cluster, batch) + 10
                cluster.wait_until(lambda: self.completed(cluster, batch) >= min(aim, 190), 60, "progress")
                redis.kill()
                connection = cluster.connect()
                connection.request("GET", "/v1/batches/" + batch)
                response = connection.getresponse()
                answer = json.loads(response.read())
                connection.close()
                self.assertEqual(response.status, 503, answer)
                self.assertTrue(response.headers["Retry-After"])
                self.assertIn("is away", answer["error"]["message"])
                self.assertEqual(cluster.request("GET", "/health")[0], 200)
                cluster.complete("a", max_tokens=2)
                self.assertEqual(self.upload(cluster, "{}")[0], 503)
                cluster.wait_until(lambda: any("start its Redis" in p["do"] for p in self.problems(cluster)),
                                   what="what to do about it")
                redis.start()
            self.check_each_once(cluster, self.wait_over(cluster, batch, 300), lines)

    def test_an_order_whose_answer_was_lost_makes_one_batch_however_often_it_is_sent(self):
        with Redis() as redis, LossyWay(redis) as way, self.cluster(way) as cluster:
            status, file = self.upload(cluster, json.dumps(line(0)))
            self.assertEqual(status, 200, file)
            way.lose_answer_to(b"moestro:batches:of:")
            self.assertEqual(self.create(cluster, file["id"])[0], 503)
            made = {}

            def answered():
                status, made["batch"] = self.create(cluster, file["id"])
                return status == 200

            cluster.wait_until(answered, 30, "Redis")
            batch = self.wait_over(cluster, made["batch"]["id"])
            self.assertEqual(batch["status"], "completed", batch)
            self.assertEqual(len(cluster.request("GET", "/v1/batches")[1]["data"]), 1)
            status, second = self.create(cluster, file["id"])
            self.assertEqual(status, 200, second)
            self.assertNotEqual(second["id"], batch["id"], "a new order")

    def test_a_redis_that_may_lose_batches_is_refused_and_serving_goes_on(self):
        with Redis("--appendonly", "no") as redis, self.cluster(redis) as cluster:
            status, answer = self.upload(cluster, json.dumps(line(0)))
            self.assertEqual(status, 503, answer)
            self.assertIn("appendonly yes", answer["error"]["message"])
            self.assertEqual(cluster.request("GET", "/v1/batches")[0], 503)
            cluster.complete("a", max_tokens=2)

    def test_the_command_line_carries_a_batch_through(self):
        with Redis() as redis, self.cluster(redis) as cluster:
            self.carry_through(cluster)
            self.cancel_midway(cluster)

    def test_files_and_cancelling_on_either(self):
        with Redis() as redis, self.cluster(redis) as one, self.cluster(redis) as other:
            status, file = self.upload(one, "\n".join(json.dumps(line(i, tokens=120)) for i in range(300)))
            self.assertEqual(status, 200, file)
            status, batch = self.create(other, file["id"])
            self.assertEqual(status, 200, batch)
            one.wait_until(lambda: self.completed(one, batch["id"]) > 0, 60, "progress")
            self.assertEqual(one.request("DELETE", "/v1/files/" + file["id"])[0], 409)
            status, now = one.request("POST", f"/v1/batches/{batch['id']}/cancel")
            self.assertEqual(status, 200, now)
            over = self.wait_over(other, batch["id"])
            self.assertEqual(over["status"], "cancelled")
            done, rest = self.results(one, over), self.results(other, over, "error_file_id")
            self.assertEqual(len({a["custom_id"] for a in done + rest}), 300)
            self.assertEqual(len(done + rest), 300)
            self.assertEqual({a["error"]["code"] for a in rest}, {"batch_cancelled"})
            self.assertEqual(other.request("DELETE", "/v1/files/" + file["id"])[0], 200)
            self.assertEqual(one.request("GET", "/v1/files/" + file["id"])[0], 404)


if __name__ == "__main__":
    main()
