"""The expert pipeline and cgo, with the KV cache of running sequences in host memory: the tokens of the layerwise
schedule, also after preemption and from shared prefixes; what the timeline shows of it; what is refused."""

import json
import pathlib

from cluster import Cluster, DemoTest, expert_and_dense_bytes, main, moestro

PROMPTS = ["Once upon a time", "The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with",
           "Once upon a time there was a king who", "Once upon a time there was a queen who", "A", "In the beginning"]


class Schedules(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expert, _ = expert_and_dense_bytes(cls.pack)
        with Cluster(cls.pack, "--deterministic") as cluster:
            cls.layerwise = cls.run_streams(cls(), cluster, PROMPTS, 40)

    def device(self, experts):
        return f"emulated:vram={experts * self.expert + (8 << 20)},link=200MB/s"

    def test_tokens_are_those_of_the_layerwise_schedule(self):
        pipeline = ("--deterministic", "--schedule", "expert-pipeline")
        cgo = ("--deterministic", "--schedule", "cgo")
        host = ("--kv-home", "host", "--context", "256", "--kv-ring-tokens", "768", "--device", self.device(20))
        for options in (pipeline, (*pipeline, "--micro-batches", "3"), (*pipeline, "--micro-batch-rows", "1"),
                        (*pipeline, *host), (*pipeline, *host, "--kv-resident-tokens", "512", "--micro-batches", "2"),
                        (*pipeline, *host, "--kv-tokens", "320"), ("--deterministic", *host),
                        (*cgo, *host), (*cgo, *host, "--micro-batches", "3", "--kv-tokens", "320"),
                        (*cgo, *host, "--micro-batch-rows", "1", "--tpot-target", "1ms"),
                        ("--deterministic", "--kv-tokens", "1024", "--device", self.device(20) + ",kv=counted")):
            with Cluster(self.pack, *options) as cluster:
                self.assertEqual(self.run_streams(cluster, PROMPTS, 40), self.layerwise, options)

    def test_larger_steps_change_no_token_and_show_in_the_status(self):
        slow = ("--deterministic", "--device", f"emulated:vram={32 * self.expert},link=20MB/s")
        rounds = [[f"{number}. " + (prompt + " ") * 60 for prompt in PROMPTS[:4]] for number in range(3)]
        told = {}
        for steps in ((), ("--step-tokens", "512"), ("--step-buffers", "64")):
            with Cluster(self.pack, *slow, *steps) as cluster:
                told[steps] = [self.run_streams(cluster, prompts, 8) for prompts in rounds]  # steps grow meanwhile
                box = (cluster.run_dir / "box.yaml").read_text()
                status = cluster.request("GET", "/v1/moestro/status")[1]
            self.assertEqual("step_buffers: 4096" in box, steps == (), steps)
            self.assertIsNone(status["forecast"], "nothing was measured by `moestro plan`")
            self.assertGreater(status["recent"]["prompts"]["tokens_per_s"], 0)
            self.assertGreater(status["recent"]["decoding"]["tokens_per_s"], 0)
            self.assertEqual(status["recent"]["prompts"]["bound"], "experts")
        self.assertEqual(told[()], told["--step-tokens", "512"])
        self.assertEqual(told[()], told["--step-buffers", "64"])

    def test_the_timeline_has_the_moves_of_kv(self):
        path = f"{self.dir.name}/kv.json"
        with Cluster(self.pack, "--kv-home", "host", "--context", "256", "--device", self.device(20), "--timeline",
                     path) as cluster:
            self.run_streams(cluster, PROMPTS, 24)
            steps = cluster.request("GET", "/v1/moestro/status")[1]["steps"]
        self.assertGreater(steps["kv_stall_seconds"], 0)
        self.assertLessEqual(steps["kv_stall_seconds"], steps["stall_seconds"])
        lines = pathlib.Path(path).read_text().splitlines()
        events = [json.loads(line.rstrip(",")) for line in lines if line.startswith("{")]
        for name in ("load kv", "save kv"):
            moved = [e for e in events if e.get("name") == name]
            self.assertGreater(len(moved), 50, name)
            self.assertTrue(all(e["args"]["bytes"] > 0 and e["args"]["layer"] >= 0 for e in moved))
        process = json.loads(moestro("timeline", "--json", path).stdout)["processes"][0]
        self.assertIn("device to host", {lane["lane"] for lane in process["lanes"]})

    def test_the_timeline_has_what_the_host_computes(self):
        path = f"{self.dir.name}/cgo.json"
        with Cluster(self.pack, "--schedule", "cgo", "--kv-home", "host", "--context", "256", "--device",
                     self.device(20), "--timeline", path) as cluster:
            self.run_streams(cluster, PROMPTS, 24)
        lines = pathlib.Path(path).read_text().splitlines()
        names = [json.loads(line.rstrip(","))["name"] for line in lines if line.startswith('{"name"')]
        for name in ("qkv", "send qkv", "attend", "load hidden", "output projection"):
            self.assertGreater(names.count(name), 50, name)
        process = json.loads(moestro("timeline", "--json", path).stdout)["processes"][0]
        self.assertIn("host compute", {lane["lane"] for lane in process["lanes"]})

    def test_what_does_not_go_is_refused_in_one_line(self):
        for options, words in ((("--schedule", "cgo"), "--schedule cgo on the CPU"),
                               (("--schedule", "cgo", "--device", self.device(20)), "add --kv-home host"),
                               (("--schedule", "cgo", "--kv-home", "host", "--kv-resident-tokens", "64", "--device",
                                 self.device(20)), "leave it out"),
                               (("--micro-batches", "2"), "need --schedule expert-pipeline or cgo"),
                               (("--schedule", "expert-pipeline", "--micro-batch-rows", "0"), "micro-batch-rows"),
                               (("--kv-home", "host", "--device", "emulated:vram=1MiB,link=1GB/s"),
                                "has no room for experts in addition to"),
                               (("--device", "emulated:vram=1MiB,link=1GB/s,kv=counted"),
                                "--kv-tokens 8192 (kv=counted)"),
                               (("--kv-home", "host", "--device", self.device(20), "--kv-ring-tokens", "64"),
                                "take at least"),
                               (("--kv-home", "host", "--device", self.device(20), "--kv-host-tokens", "64"),
                                "--kv-host-tokens")):
            self.assert_refused(words, *options)


if __name__ == "__main__":
    main()
