"""Dense weights that do not fit into --dram, or into a device's memory: the tokens of the run that holds them all, with
one worker and two, when store and workers are killed, beside packs that are added, and from one that is replaced; what
is said of it; damage and refusals."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from cluster import BIN, Cluster as AnyCluster, DemoTest, expert_and_dense_bytes, main, moestro

PROMPTS = ["Once upon a time", "The price of a bushel", "A", "12 apples"]
TOKENS = 24
SHAPE = ("--shape", "mixtral-mini", "--layers", 16, "--hidden", 256, "--heads", 16, "--kv-heads", 16, "--head-dim", 64,
         "--ffn", 128, "--experts-per-layer", 8, "--top-k", 2, "--vocab", 512)


def Cluster(pack, *options):
    """With a small KV cache: as many tokens as by default are 1 GiB for each worker, which it clears when it starts."""
    return AnyCluster(pack, "--kv-tokens", "1024", *options)


class Dense(unittest.TestCase):
    run_streams = DemoTest.run_streams
    assert_refused = DemoTest.assert_refused

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.pack = pathlib.Path(cls.dir.name) / "pack"
        moestro("bench", "model", *SHAPE, "-o", cls.pack)
        cls.expert, cls.dense = expert_and_dense_bytes(cls.pack)
        cls.half = str(cls.dense // 2)
        with Cluster(cls.pack, "--deterministic") as cluster:
            cls.calm = cls.run_streams(cls(), cluster, PROMPTS, TOKENS)
            status = cluster.request("GET", "/v1/moestro/status")[1]
            assert status["steps"]["dense_read_bytes"] == 0, status["steps"]
            assert cls.store_status(cluster)["window_places"] == 0

    @staticmethod
    def store_status(cluster):
        return json.loads(moestro("store", "list", "--json", "--run-dir", cluster.run_dir).stdout)

    def log_of(self, cluster, program):
        return "".join(file.read_text() for file in (cluster.run_dir / "logs").glob(f"*{program}*"))

    def test_half_of_them_in_memory_change_no_token(self):
        for workers in ("1", "2"):
            with Cluster(self.pack, "--deterministic", "--dram", self.half, "--workers", workers) as cluster:
                self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm, workers)
                model = self.store_status(cluster)["models"][0]
                self.assertEqual(model["layers"], 16)
                self.assertGreater(model["streamed_layers"], 8)
                self.assertLess(model["streamed_layers"], 16)
                self.assertRegex(self.log_of(cluster, "store"), "dense weights do not fit: .* steps a second")

    def test_status_metrics_and_doctor_tell_of_it(self):
        with Cluster(self.pack, "--deterministic", "--dram", self.half) as cluster:
            self.run_streams(cluster, PROMPTS, TOKENS)
            store = self.store_status(cluster)
            status = cluster.request("GET", "/v1/moestro/status")[1]
            steps, served = status["steps"], status["store"]["models"][0]
            metrics = cluster.request("GET", "/metrics")[1]
            doctor = moestro("doctor", "--store", cluster.run_dir, check=False).stdout
        streamed = store["models"][0]["streamed_bytes"]
        for figure in ("layers", "streamed_layers", "streamed_bytes"):
            self.assertEqual(served[figure], store["models"][0][figure])
        self.assertLessEqual(steps["dense_read_bytes"], steps["count"] * streamed)
        self.assertGreater(steps["dense_read_bytes"], (steps["count"] - 1) * streamed * 0.8)
        self.assertGreater(steps["dense_stall_seconds"], 0)
        self.assertLessEqual(steps["dense_stall_seconds"], steps["stall_seconds"])
        self.assertGreaterEqual(store["streamed_loaded_bytes"], steps["dense_read_bytes"])
        for name in ("moestro_dense_read_bytes_total", "moestro_dense_stall_seconds_total"):
            self.assertIn(name, metrics)
        self.assertIn(f"{16 - store['models'][0]['streamed_layers']} of 16 layers stay in memory", doctor)

    def test_store_and_workers_are_killed(self):
        for workers in ("1", "2"):
            with Cluster(self.pack, "--deterministic", "--dram", self.half, "--workers", workers) as cluster:
                for program in ("moestro-store", "moestro-worker", "moestro-store"):
                    victim = cluster.children(program)[0]
                    kill = lambda: os.kill(victim, signal.SIGKILL)
                    self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS, kill), self.calm, program)
                    expected = 1 if program == "moestro-store" else int(workers)
                    cluster.wait_until(lambda: len(cluster.children(program)) == expected, what="its successor")
                self.assertIn("adopted the arena", self.log_of(cluster, "store"))

    def device(self, dense, experts=32):
        return f"emulated:vram={self.dense + experts * self.expert},link=400MB/s,dense={dense}"

    def test_on_a_device_they_change_no_token(self):
        pipeline = ("--schedule", "expert-pipeline", "--micro-batches", "2")
        small = f"emulated:vram={self.dense // 2 + 16 * self.expert},link=400MB/s,latency=20us,dense=counted"
        for options in (("--device", small), ("--device", self.device("50%")), ("--device", self.device("0%")),
                        ("--device", self.device("50%"), *pipeline),
                        ("--device", self.device("25%"), *pipeline, "--kv-home", "host", "--context", "128",
                         "--kv-ring-tokens", "768"),
                        ("--device", self.device("50%"), "--workers", "2")):
            with Cluster(self.pack, "--deterministic", *options) as cluster:
                self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm, options)
                self.assertRegex(self.log_of(cluster, "worker"),
                                 r"dense weights of \d+ of 16 layers stay on the device, each step copies .* over the "
                                 r"link: at most .* tokens/s")
                self.assertEqual(self.store_status(cluster)["window_places"], 0, "host memory has all of them")

    def test_a_device_that_has_room_for_all_copies_none(self):
        with Cluster(self.pack, "--deterministic", "--device", self.device("counted")) as cluster:
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm)
            self.assertIn("all dense weights stay on the device", self.log_of(cluster, "worker"))
            self.assertEqual(cluster.request("GET", "/v1/moestro/status")[1]["steps"]["dense_read_bytes"], 0)

    def test_status_metrics_top_and_timeline_tell_of_a_device(self):
        path = f"{self.dir.name}/device.json"
        with Cluster(self.pack, "--device", self.device("0%"), "--timeline", path) as cluster:
            self.run_streams(cluster, PROMPTS, TOKENS)
            steps = cluster.request("GET", "/v1/moestro/status")[1]["steps"]
            metrics = cluster.request("GET", "/metrics")[1]
            top = moestro("top", "--once", "--run-dir", cluster.run_dir).stdout
        self.assertGreater(steps["dense_read_bytes"], 0)
        self.assertEqual(steps["dense_read_bytes"] % steps["count"], 0, "each step copies the same")
        self.assertGreater(steps["dense_stall_seconds"], 0)
        for_experts = float(re.search(r"^moestro_device_stall_seconds_total\S* (\S+)", metrics, re.M).group(1))
        self.assertAlmostEqual(for_experts, steps["stall_seconds"] - steps["dense_stall_seconds"], 5)
        self.assertEqual(steps["kv_stall_seconds"], 0, "the KV cache does not move")
        self.assertIn("moestro_dense_read_bytes_total", metrics)
        self.assertIn("dense weights take turns", top)
        lines = pathlib.Path(path).read_text().splitlines()
        events = [json.loads(line.rstrip(",")) for line in lines if line.startswith("{")]
        copies = [e for e in events if e.get("name") == "copy weights"]
        self.assertEqual({e["args"]["layer"] for e in copies}, set(range(16)))
        self.assertTrue(all(e["cat"] == "dense" and e["args"]["bytes"] > 0 for e in copies))
        stalls = [e for e in events if e.get("name") == "stall" and e["args"]["cause"] == "dense weights"]
        self.assertGreater(len(stalls), 0)
        self.assertEqual({e["args"]["tier"] for e in stalls}, {"dram"})
        moestro("timeline", "--json", path)

    def test_store_and_worker_of_a_device_are_killed(self):
        for schedule in ("layerwise", "expert-pipeline"):
            with Cluster(self.pack, "--deterministic", "--device", self.device("50%"), "--schedule",
                         schedule) as cluster:
                for program in ("moestro-store", "moestro-worker", "moestro-store"):
                    victim = cluster.children(program)[0]
                    kill = lambda: os.kill(victim, signal.SIGKILL)
                    self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS, kill), self.calm, program)
                    cluster.wait_until(lambda: len(cluster.children(program)) == 1, what="its successor")

    def test_half_of_them_in_memory_change_no_token_of_the_pipeline(self):
        with Cluster(self.pack, "--deterministic", "--dram", self.half, "--schedule", "expert-pipeline",
                     "--micro-batches", "2") as cluster:
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm)

    def test_scrubbing_and_a_warm_start_go_on(self):
        """What stays is read again by the next store; what takes turns is read when a step needs it."""
        run = ("--run-dir", f"{self.dir.name}/kept", "--deterministic", "--dram", self.half, "--scrub", "512MiB")
        with Cluster(self.pack, *run) as cluster:
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm)
            cluster.wait_until(lambda: self.store_status(cluster)["scrubbed_bytes"] > self.dense // 4, what="a scrub")
            self.assertEqual(self.store_status(cluster)["scrub_mismatches"], 0)
        with Cluster(self.pack, *run) as cluster:
            cluster.wait_until(lambda: not self.store_status(cluster)["warm_start"]["running"], what="the warm start")
            warm = self.store_status(cluster)["warm_start"]
            self.assertEqual(warm["blobs_there"], warm["blobs"], "none of the streamed ones is among them")
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm)

    def test_the_timeline_names_dense_weights(self):
        path = f"{self.dir.name}/timeline.json"
        with Cluster(self.pack, "--dram", self.half, "--timeline", path) as cluster:
            self.run_streams(cluster, PROMPTS[:1], 8, after=8)
        lines = pathlib.Path(path).read_text().splitlines()
        events = [json.loads(line.rstrip(",")) for line in lines if line.startswith("{")]
        stalls = [e for e in events if e.get("name") == "stall" and e["args"]["cause"] == "dense weights"]
        self.assertGreater(len(stalls), 0)
        self.assertGreater(len([e for e in events if e.get("name") == "read weights"]), 0)
        moestro("timeline", "--json", path)

    def test_damage_fails_requests_by_name_until_it_is_mended(self):
        with Cluster(self.pack, "--deterministic", "--dram", self.half) as cluster:
            name = cluster.request("GET", "/v1/models")[1]["data"][0]["id"]
            self.run_streams(cluster, PROMPTS, TOKENS)
            data = self.pack / "dense.bin"
            whole = data.read_bytes()
            with open(data, "r+b") as file:  # all of it: what is in memory is right, what is read is not
                file.seek(len(whole) // 4)
                file.write(bytes(len(whole) // 2))
            try:
                status, body = cluster.request("POST", "/v1/completions", {"prompt": "A", "max_tokens": 4})
                self.assertGreaterEqual(status, 500, body)
                self.assertIn("dense", json.dumps(body))
            finally:
                data.write_bytes(whole)
            moestro("store", "replace", f"{name}={self.pack}", "--run-dir", cluster.run_dir)
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm)

    def test_packs_that_are_added_and_replaced_share_the_window(self):
        other, copy = (pathlib.Path(self.dir.name) / name for name in ("other", "copy"))
        moestro("bench", "model", *SHAPE, "--seed", 2, "-o", other)
        moestro("bench", "model", *SHAPE, "--name", "copy", "-o", copy)
        with Cluster(self.pack, "--deterministic", "--dram", str(self.dense // 2 + (2 << 20))) as cluster:
            name = cluster.request("GET", "/v1/models")[1]["data"][0]["id"]
            store = ("--run-dir", cluster.run_dir)
            moestro("store", "add", f"b={other}", *store)
            models = {model["name"]: model for model in self.store_status(cluster)["models"]}
            self.assertEqual(models["b"]["streamed_layers"], 16, "none of them finds room to stay")
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm)
            moestro("store", "remove", "b", *store)
            moestro("store", "replace", f"{name}={copy}", *store)
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm, "the copy has the same weights")
            # The version before may stay without a name: bytes that both have may lie where it was first read.
            in_use = lambda: [m["pack"] for m in self.store_status(cluster)["models"] if m["workers"] > 0]
            cluster.wait_until(lambda: in_use() == [str(copy.resolve())], what="the worker's move to the new version")
            os.kill(cluster.children("moestro-store")[0], signal.SIGKILL)
            self.assertEqual(self.run_streams(cluster, PROMPTS, TOKENS), self.calm)
            served = [m for m in self.store_status(cluster)["models"] if not m["retired"]]
            self.assertEqual([m["pack"] for m in served], [str(copy.resolve())], "its successor serves what it served")
            if "adopted the arena" not in self.log_of(cluster, "store"):
                self.assertLess(served[0]["streamed_layers"], 16, "a new arena, divided anew")

    def test_a_window_for_fewer_workers_is_not_taken_over(self):
        config, log = (pathlib.Path(self.dir.name) / name for name in ("store.yaml", "store.log"))
        for workers in (1, 4):
            config.write_text(f"workers:\n  count: {workers}\n")
            with log.open("wb") as to:
                store = subprocess.Popen([BIN / "moestro-store", "--config", config, "--dram", self.half,
                                          "--model", f"m={self.pack}", "--run-dir", self.dir.name + "/run",
                                          "--arena-dir", self.dir.name + "/arena"], stdout=to, stderr=to)
            try:
                deadline = time.monotonic() + 60
                while "ready" not in log.read_text() and store.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
            finally:
                store.kill()
                store.wait()
            self.assertIn("ready", log.read_text())
        self.assertIn("its window for dense weights has 2 places, and 4 workers need one each", log.read_text())

    def test_what_does_not_go_is_refused_in_one_line(self):
        for options, words in ((("--dram", "2M"), "raise --dram to at least"),
                               (("--device", self.device("0%"), "--schedule", "cgo", "--kv-home", "host", "--context",
                                 "128", "--kv-ring-tokens", "384"), "--schedule cgo where dense weights take turns"),
                               (("--device", "emulated:vram=2M,link=1GB/s,dense=counted"),
                                "give the device at least vram="),
                               (("--device", "emulated:vram=2M,link=1GB/s,dense=much"), "neither counted nor free"),
                               (("--dram", self.half, "--device", "emulated:vram=2M,link=1GB/s"), "raise --dram")):
            self.assert_refused(words, *options)


if __name__ == "__main__":
    main()
