"""What `up` promises of programs that have served, of full disks, of what a store came to serve: killed and crowded."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from batch_box import BatchTest, line
from cluster import Cluster, main, moestro, pack

KILLS_IN_A_ROW = 6  # more than the deaths in a row that end the run of programs that have not served
NEXT_UP_SECONDS_MAX = 20


class UpFaults(BatchTest):
    @contextlib.contextmanager
    def small_disk(self, size):
        """A file system of that size; a test that may not mount one is skipped, and counted."""
        with tempfile.TemporaryDirectory(prefix="moestro-small-", dir="/tmp") as mount:
            command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", mount]
            if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
                self.skipTest("no right to mount a small file system")
            try:
                yield pathlib.Path(mount)
            finally:
                subprocess.run(["umount", "-l", mount], check=True)

    @staticmethod
    def fill(mount):
        """Takes what room is left, to the last page."""
        with contextlib.suppress(OSError), open(mount / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def serves(self, cluster):
        try:
            return cluster.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
        except OSError:
            return False

    def kill_again_and_again(self, cluster, program, times=KILLS_IN_A_ROW):
        """Each time as soon as there is one."""
        for _ in range(times):
            cluster.wait_until(lambda: cluster.children(program), 30, f"a {program}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(cluster.children(program)[0], signal.SIGKILL)
            time.sleep(0.05)

    def test_what_has_served_is_never_given_up(self):
        with Cluster(self.pack) as cluster:
            for program in ("moestro-orchestrator", "moestro-worker", "moestro-store"):
                self.kill_again_and_again(cluster, program)
                cluster.wait_until(lambda: self.serves(cluster), 60, f"service after the deaths of {program}")
                self.assertIsNone(cluster.process.poll())

    def test_an_up_killed_amid_a_batch_is_followed_by_the_next(self):
        with tempfile.TemporaryDirectory(prefix="moestro-run-", dir="/tmp") as place:
            where = ("--run-dir", place + "/run", "--arena-dir", place + "/arena", "--state",
                     f"sqlite:{place}/state.db")
            with Cluster(self.pack, *where) as first:
                batch = self.submit(first, [line(i, tokens=64) for i in range(400)])
                first.wait_until(lambda: self.completed(first, batch) >= 5, 60, "lines that are done")
                first.process.kill()
                first.process.wait()
                began = time.monotonic()
                with Cluster(self.pack, *where) as second:
                    self.assertLess(time.monotonic() - began, NEXT_UP_SECONDS_MAX)
                    over = self.wait_over(second, batch, 240)
                    self.assertEqual(over["request_counts"], {"total": 400, "completed": 400, "failed": 0})

    def stalled(self, cluster):
        return cluster.request("GET", "/v1/moestro/status")[1]["batches"]["stalled"]

    def test_a_second_up_on_one_arena_is_refused_at_once(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as arena, Cluster(self.pack, "--arena-dir", arena):
            began = time.monotonic()
            second = Cluster(self.pack, "--arena-dir", arena)
            with self.assertRaises(AssertionError):
                second.__enter__()
            self.assertLess(time.monotonic() - began, 10)
            self.assertIn(f"another store serves out of {arena}", second.log_text)

    def test_an_added_model_outlives_the_store(self):
        more = pack(pathlib.Path(__file__).resolve().parents[2] / "models/demo", self.dir.name + "/more", "--experts",
                    "int8")
        with Cluster(self.pack) as cluster:
            run = cluster.run_dir
            moestro("store", "add", f"more={more}", "--run-dir", run)
            before = json.loads(moestro("store", "list", "--json", "--run-dir", run).stdout)
            for _ in range(2):
                self.kill_one(cluster, "moestro-store")
                after = json.loads(moestro("store", "list", "--json", "--run-dir", run).stdout)
                self.assertEqual([m["name"] for m in after["models"]], [m["name"] for m in before["models"]])
            self.assertEqual((run / "logs/store.log").read_text().count("adopted the arena"), 2)

    def test_a_full_disk_of_the_state_leaves_completions_served(self):
        with self.small_disk("1m") as disk, Cluster(self.pack, "--state", f"sqlite:{disk}/s/state.db") as cluster:
            batch = self.submit(cluster, [line(i, tokens=48) for i in range(200)])
            cluster.wait_until(lambda: self.completed(cluster, batch) >= 5, 60, "lines that are done")
            self.fill(disk)
            for _ in range(2):
                self.kill_one(cluster, "moestro-orchestrator")
                self.assertEqual(self.upload(cluster, "x" * 100_000)[0], 507)
                self.fill(disk)  # a journal that was written back has left room
                cluster.wait_until(lambda: "disk is full" in str(self.stalled(cluster)), 20, "batches that stand still")
                cluster.wait_until(lambda: self.serves(cluster), 10, "completions")
            (disk / "filler").unlink()
            over = self.wait_over(cluster, batch, 120)
            self.assertEqual(over["request_counts"], {"total": 200, "completed": 200, "failed": 0})

    def test_a_damaged_journal_is_said_and_completions_are_served(self):
        state = pathlib.Path(self.dir.name) / "wal" / "state.db"
        with Cluster(self.pack, "--state", f"sqlite:{state}") as cluster:
            batch = self.submit(cluster, [line(i) for i in range(100)])
            cluster.wait_until(lambda: self.completed(cluster, batch) >= 50, 60, "lines that are done")
            # `up` must not be quicker: it starts the next one when the journal is damaged.
            before = cluster.children("moestro-orchestrator")[0]
            cluster.process.send_signal(signal.SIGSTOP)
            os.kill(before, signal.SIGKILL)
            time.sleep(0.5)
            journal = pathlib.Path(f"{state}-wal")
            whole = journal.read_bytes()
            damaged = bytearray(whole)
            damaged[len(whole) // 3] ^= 1
            journal.write_bytes(damaged)
            cluster.process.send_signal(signal.SIGCONT)
            cluster.wait_until(lambda: cluster.children("moestro-orchestrator") not in ([], [before]), 30, "the next")
            cluster.wait_until(lambda: self.serves(cluster), 60, "completions")
            status, answer = cluster.request("GET", "/v1/batches/" + batch)
            self.assertEqual(status, 500, answer)
            self.assertIn(f"{state}-wal is damaged", answer["error"]["message"])
            self.assertIn("is damaged", cluster.request("GET", "/v1/moestro/status")[1]["batches"]["stalled"])
            self.assertIn("is damaged", (cluster.run_dir / "logs/orchestrator.log").read_text())
            journal.write_bytes(whole)  # the copy is put back
            over = self.wait_over(cluster, batch, 120)
            self.assertEqual(over["request_counts"], {"total": 100, "completed": 100, "failed": 0})

    def test_a_full_run_directory_does_not_end_the_box(self):
        with self.small_disk("64k") as disk, Cluster(self.pack, "--run-dir", disk / "r") as cluster:
            self.assertTrue(self.serves(cluster))
            self.fill(disk)
            for program in ("moestro-store", "moestro-orchestrator", "moestro-worker", "moestro-store"):
                self.kill_one(cluster, program)
            self.assertEqual((disk / "r" / "http.port").read_text(), f"{cluster.port}\n")


if __name__ == "__main__":
    main()
