"""Timelines of real runs, as `moestro timeline` reads them: every lane of every worker, and what steps waited for."""

import json
import os
import pathlib
import signal

from cluster import BIN, Cluster, DemoTest, expert_and_dense_bytes, main, moestro

PROMPTS = ["Once upon a time", "The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with"]
CAUSES = {"not foreseen", "foreseen too late", "link busy", "no room"}
PLUGIN = BIN.parent / "tests" / "libmoestro_cuda_emulated.so"


def summary(*files):
    return json.loads(moestro("timeline", "--json", *files).stdout)


def lanes_of(process):
    return {lane["lane"]: lane for lane in process["lanes"]}


class Timeline(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expert, cls.dense = expert_and_dense_bytes(cls.pack)

    def record(self, name, *options, workers=1, env=None):
        """The files of a run of some prompts."""
        path = f"{self.dir.name}/{name}.json"
        with Cluster(self.pack, "--timeline", path, "--workers", workers, *options, env=env) as cluster:
            self.run_streams(cluster, PROMPTS, 24)
        return sorted(map(str, pathlib.Path(self.dir.name).glob(f"{name}*.json")))

    def check_stalls(self, everything, tiers):
        for process in everything["processes"]:
            stalls = process["stalls"]
            self.assertEqual(sum(c["count"] for c in stalls["by_cause"].values()), stalls["count"])
            self.assertLessEqual(set(stalls["by_cause"]), CAUSES)
        self.assertEqual(len(everything["longest_stalls"]), 10)
        lengths = [stall["length_us"] for stall in everything["longest_stalls"]]
        self.assertEqual(lengths, sorted(lengths, reverse=True))
        for stall in everything["longest_stalls"]:
            self.assertIn(stall["cause"], CAUSES)
            self.assertIn(stall["tier"], tiers)
            self.assertGreaterEqual(stall["layer"], 0)
            self.assertGreaterEqual(stall["expert"], 0)

    def test_all_workers_of_a_box_with_devices_of_their_own(self):
        # With a KV cache too small for all of them, both workers get some.
        files = self.record("devices", "--device", f"emulated:vram={10 * self.expert},link=100MB/s", "--kv-tokens",
                            "96", workers=2)
        self.assertEqual(len(files), 2)
        everything = summary(*files)
        self.assertEqual(sorted(p["name"] for p in everything["processes"]), ["worker-0", "worker-1"])
        self.check_stalls(everything, {"dram", "drive"})
        for process in everything["processes"]:
            self.assertGreater(process["steps"]["count"], 20)
            lanes = lanes_of(process)
            for lane in ("compute", "host to device"):
                self.assertGreater(lanes[lane]["busy_share"], 0.01, lane)
                self.assertAlmostEqual(lanes[lane]["busy_share"] + lanes[lane]["idle_share"], 1, places=6)
            # The compute lane works, waits for an expert, or does what no task is.
            self.assertLessEqual(lanes["compute"]["busy_share"] + process["stalls"]["share"], 1.001)
            self.assertGreater(process["stalls"]["time_us"], 0)
        text = moestro("timeline", *files).stdout
        self.assertIn("worker-1", text)
        self.assertIn("Longest stalls", text)

    def test_a_cpu_worker_waits_for_the_drive(self):
        files = self.record("cpu", "--dram", str(self.dense + 8 * self.expert))
        everything = summary(*files)
        self.check_stalls(everything, {"drive"})
        self.assertIn("store read", lanes_of(everything["processes"][0]))

    def test_a_gpu(self):
        env = {**os.environ, "MOESTRO_CUDA_PLUGIN": str(PLUGIN)}
        files = self.record("gpu", "--device", "cuda,vram=80MiB", env=env)
        process = summary(*files)["processes"][0]
        lanes = lanes_of(process)
        self.assertIn("host to device", lanes)
        self.assertGreater(lanes["compute"]["busy_share"], 0)
        names = {event["name"] for event in json.loads(pathlib.Path(files[0]).read_text()) if event["ph"] == "X"}
        self.assertLessEqual({"embed", "attention", "router", "experts", "combine", "head", "copy expert"}, names)

    def test_a_file_that_is_being_written_and_that_of_a_killed_worker(self):
        path = f"{self.dir.name}/live.json"
        with Cluster(self.pack, "--timeline", path, "--device",
                     f"emulated:vram={10 * self.expert},link=100MB/s") as cluster:
            cluster.complete(PROMPTS[0], max_tokens=24, ignore_eos=True)
            live = summary(path)
            os.kill(cluster.children("moestro-worker")[0], signal.SIGKILL)
            cluster.wait_until(lambda: os.path.exists(path + ".old"), what="the worker's successor")
        self.assertGreaterEqual(live["processes"][0]["steps"]["count"], 24)
        self.assertFalse(pathlib.Path(path + ".old").read_text().rstrip().endswith("]"))
        killed = summary(path + ".old")
        self.assertEqual(killed["processes"][0]["steps"]["count"], live["processes"][0]["steps"]["count"])
    def test_arrows_lead_from_prefetches_to_uses(self):
        """Also to those in later steps."""
        files = self.record("arrows", "--device", f"emulated:vram={20 * self.expert},link=2GB/s", "--predict", "auto")
        events = json.loads(pathlib.Path(files[0]).read_text())
        slices = [e for e in events if e["ph"] == "X"]
        starts = {e["id"]: e for e in events if e["ph"] == "s"}
        ends = {e["id"]: e for e in events if e["ph"] == "f"}
        self.assertTrue(ends)
        self.assertLessEqual(set(ends), set(starts))
        prefetches = {(e["ts"], e["tid"]) for e in slices if e["cat"] == "prefetch"}
        used = [i for i in ends if (starts[i]["ts"], starts[i]["tid"]) in prefetches]
        self.assertTrue(used, "no prefetch was used")
        for i in used:
            self.assertLessEqual(starts[i]["ts"], ends[i]["ts"])


if __name__ == "__main__":
    main()
