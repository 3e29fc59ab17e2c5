"""Batches on real processes: whatever is killed, every line has one result. MOESTRO_BATCH_LINES, _TOKENS and _KILLS
make it longer."""

import os
import pathlib
import random
import subprocess
import sys

import batch_box
from batch_box import BatchTest
from cluster import Cluster, expert_and_dense_bytes, main

LINES = int(os.environ.get("MOESTRO_BATCH_LINES", "600"))
TOKENS = int(os.environ.get("MOESTRO_BATCH_TOKENS", "48"))
KILLS = int(os.environ.get("MOESTRO_BATCH_KILLS", "6"))
SEED = int(os.environ.get("MOESTRO_FAULTS_SEED", "7"))
PROGRAMS = ["moestro-orchestrator", "moestro-worker", "moestro-store"]


def line(i, **body):
    return batch_box.line(i, **{"tokens": TOKENS, **body})


class Batches(BatchTest):
    def test_whatever_is_killed_every_line_has_one_result(self):
        chance = random.Random(SEED)
        lines = [line(i) for i in range(LINES)]
        with Cluster(self.pack, "--state", "sqlite:" + self.dir.name + "/kills/state.db") as cluster:
            batch = self.submit(cluster, lines)
            kills = 0
            for kill in range(KILLS):
                victim = PROGRAMS[kill % 3]
                before = (self.look(cluster, batch) or {}).get("request_counts", {}).get("completed", 0)
                step = chance.randrange(1, max(2, LINES // (2 * KILLS)))
                cluster.wait_until(
                    lambda: ((now := self.look(cluster, batch)) and
                             (now["request_counts"]["completed"] >= min(before + step, LINES))), 120, "progress")
                if self.look(cluster, batch)["status"] == "completed":
                    break
                self.kill_one(cluster, victim)
                kills += 1
            self.assertGreaterEqual(kills, min(KILLS, 3), "the batch was over too soon")
            over = self.wait_over(cluster, batch, 600)
            self.assertEqual(over["status"], "completed", over)
            self.assertEqual(over["request_counts"], {"total": LINES, "completed": LINES, "failed": 0})
            answers = self.results(cluster, over)
            self.assertEqual(sorted(a["custom_id"] for a in answers), sorted(one["custom_id"] for one in lines))
            print(f"{LINES} lines of {TOKENS} tokens, {kills} programs killed", file=sys.stderr)
            self.assertEqual({a["response"]["body"]["usage"]["completion_tokens"] for a in answers}, {TOKENS})

    def test_a_group_is_as_large_as_the_cache_holds_while_experts_come_from_the_drive(self):
        expert, dense = expert_and_dense_bytes(self.pack)
        lines, tokens, most = 240, 48, 0
        # 192 lines of about 12 and 48 tokens fill 12,288 tokens of the cache.
        with Cluster(self.pack, "--dram", str(dense + 24 * expert), "--kv-tokens", "12288", "--state",
                     "sqlite:" + self.dir.name + "/group/state.db") as cluster:
            batch = self.submit(cluster, [line(i, tokens=tokens) for i in range(lines)])
            status = {}

            def over():
                nonlocal most
                status.update(cluster.request("GET", "/v1/moestro/status")[1])
                most = max(most, status["sequences"]["running"])
                return (self.look(cluster, batch) or {}).get("status") == "completed"

            cluster.wait_until(over, 120, "the end of the batch")
            print(f"{most} lines at once, {status['sequences']['preemptions']} sent back, "
                  f"{status['tiers']['nvme']['read_bytes']} bytes read", file=sys.stderr)
            self.assertGreaterEqual(most, 128)
            self.assertEqual(status["sequences"]["preemptions"], 0)
            self.assertGreater(status["tiers"]["dram"]["misses"], 0, "experts came from the drive")

    def test_a_batch_survives_a_stop_of_everything(self):
        state = "sqlite:" + self.dir.name + "/stop/state.db"
        with Cluster(self.pack, "--state", state) as cluster:
            batch = self.submit(cluster, [line(i, tokens=48) for i in range(300)])
            cluster.wait_until(lambda: self.look(cluster, batch)["request_counts"]["completed"] > 5, what="progress")
        self.assertEqual(cluster.exit_code, 0, cluster.log_text)
        with Cluster(self.pack, "--state", state) as cluster:
            over = self.wait_over(cluster, batch)
            self.assertEqual(len({a["custom_id"] for a in self.results(cluster, over)}), 300)
            self.assertEqual(over["request_counts"], {"total": 300, "completed": 300, "failed": 0})

    def test_an_interactive_request_does_not_wait_for_a_batch(self):
        with Cluster(self.pack) as cluster:
            batch = self.submit(cluster, [line(i, tokens=200) for i in range(400)])
            cluster.wait_until(lambda: self.look(cluster, batch)["status"] == "in_progress", what="the batch")
            for _ in range(5):
                cluster.complete("a", max_tokens=4)
            self.assertEqual(
                self.look(cluster, batch)["status"], "in_progress", "the batch was over before: this proves nothing")
            status, now = cluster.request("POST", f"/v1/batches/{batch}/cancel")
            self.assertEqual(status, 200, now)
            over = self.wait_over(cluster, batch)
            done = self.results(cluster, over) if over["output_file_id"] else []
            self.assertEqual(len(done) + len(self.results(cluster, over, "error_file_id")), 400)

    def orchestrator(self, state):
        return subprocess.run([
            pathlib.Path(os.environ["MOESTRO_BIN_DIR"]) / "moestro-orchestrator", "--model", f"pack={self.pack}",
            "--run-dir", self.dir.name + "/other", "--http", "127.0.0.1:0", "--state", state
        ], capture_output=True, text=True, timeout=60)

    def test_a_state_that_cannot_be_used_is_refused_by_name(self):
        state = self.dir.name + "/shared/state.db"
        with Cluster(self.pack, "--state", "sqlite:" + state) as cluster:
            second = self.orchestrator("sqlite:" + state)
            self.assertEqual(second.returncode, 2, second.stderr)
            self.assertIn("belongs to another orchestrator", second.stderr)
            self.assertEqual(cluster.request("GET", "/health")[0], 200)
        for wrong, why in (("postgres://h/x", "postgres://h/x"), ("rediss://h/0", "TLS"), ("redis://h:secret@x:y",
                                                                                           "port")):
            refused = self.orchestrator(wrong)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(why, refused.stderr)
            self.assertNotIn("secret", refused.stderr)
        with open(state, "r+b") as file:
            file.write(b"x" * 8192)
        damaged = self.orchestrator(state)
        self.assertNotEqual(damaged.returncode, 0)
        self.assertIn(state, damaged.stderr)
        self.assertEqual(len(damaged.stderr.strip().splitlines()[-1:]), 1)

    def small_disk(self, size):
        mount = pathlib.Path(self.dir.name) / ("small-" + size)
        mount.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "none", mount],
                                               capture_output=True).returncode != 0:
            self.skipTest("no right to mount a small file system")
        self.addCleanup(subprocess.run, ["umount", mount], check=True)
        return mount

    def test_a_full_disk_is_said_and_leaves_nothing_half_written(self):
        mount = self.small_disk("1m")
        with Cluster(self.pack, "--state", f"sqlite:{mount}/s/state.db") as cluster:
            status, answer = self.upload(cluster, "x" * 2_000_000)
            self.assertEqual(status, 507, answer)
            self.assertEqual(list((mount / "s" / "state.db.files").iterdir()), [])
            self.assertEqual(cluster.request("GET", "/v1/files")[1]["data"], [])
            over = self.wait_over(cluster, self.submit(cluster, [line(i) for i in range(20)]))
            self.assertEqual(over["request_counts"]["completed"], 20)

    def test_a_full_disk_is_freed_over_http(self):
        mount = self.small_disk("6m")
        state = f"sqlite:{mount}/s/state.db"
        with Cluster(self.pack, "--state", state) as cluster:
            spare = [self.upload(cluster, "x" * 1_000_000)[1]["id"] for _ in range(4)]
            batch = self.submit(cluster, [line(i, tokens=150, logprobs=1) for i in range(1500)])
            cluster.wait_until(
                lambda: cluster.request("GET", "/v1/moestro/status")[1]["batches"]["stalled"], 60, "a full disk")
            self.assertEqual(self.upload(cluster, "x" * 200_000)[0], 507)
            self.assertEqual(cluster.request("POST", f"/v1/batches/{batch}/cancel")[0], 200)
            self.assertEqual(cluster.request("DELETE", "/v1/files/" + spare[0])[0], 200)
        with Cluster(self.pack, "--state", state) as cluster:
            for one in spare[1:]:
                self.assertEqual(cluster.request("DELETE", "/v1/files/" + one)[0], 200)
            over = self.wait_over(cluster, batch)
            self.assertEqual(over["status"], "cancelled")
            lines = [one["custom_id"] for which in ("output_file_id", "error_file_id")
                     for one in self.results(cluster, over, which)]
            self.assertEqual(sorted(lines), sorted(f"line-{i}" for i in range(1500)))

    def test_the_command_line_carries_a_batch_through(self):
        with Cluster(self.pack) as cluster:
            self.carry_through(cluster)
            self.cancel_midway(cluster)


if __name__ == "__main__":
    main()
