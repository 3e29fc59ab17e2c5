"""--device cuda in whole programs: over the emulated plugin, on every machine. What cannot be computed on is refused by
its reason; a device that falls off loses nothing."""

import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

from cluster import BIN, DEMO, Cluster, DemoTest, main, pack

PLUGIN = BIN.parent / "tests" / "libmoestro_cuda_emulated.so"
DEMO_IDS = [token for prompt in json.loads((DEMO / "reference.json").read_text())["prompts"] for token in prompt["ids"]]
PROMPTS = ["Once upon a time", "The price of a bushel of wheat", "def parse(self, text):", "Mix the flour with"]


def environment(devices=None, faults=None, fallen=None, plugin=PLUGIN):
    env = {**os.environ, "MOESTRO_CUDA_PLUGIN": str(plugin)}
    for name, value in (("DEVICES", devices), ("FAULTS", faults), ("FALLEN", fallen)):
        if value is not None:
            env["MOESTRO_EMULATED_CUDA_" + name] = str(value)
    return env


def worker(device, **settings):
    """A worker that has no store: what is said of its device comes first."""
    return subprocess.run([
        BIN / "moestro-worker", "--model", "m", "--store", "ipc:///nowhere/store.sock", "--orchestrator",
        "ipc:///nowhere/o.sock", "--store-wait", "0s", "--device", device
    ], capture_output=True, text=True, env=environment(**settings), timeout=60)


class Refusals(unittest.TestCase):
    """Each of them: one line on stderr, and an exit code that says whether another start may help."""

    CASES = [
        ("no driver, or one too old", {"faults": "no-driver"}, "cuda", 1,
         ["no CUDA device: CUDA driver version is insufficient for CUDA runtime version", "NVIDIA driver"]),
        ("no device", {"devices": ""}, "cuda", 1, ["no CUDA device"]),
        ("a card too old", {"devices": "Tesla T4,7.5,16G;NVIDIA L4,8.9,24G"}, "cuda:0", 2,
         ["the card is a Tesla T4 of compute capability 7.5; the kernels need 8.0; usable here: cuda:1"]),
        ("all of its memory taken", {"devices": "NVIDIA L4,8.9,24G,24G"}, "cuda", 1,
         ["only 0 B of the NVIDIA L4's 24.0 GiB are free", "other processes have the rest (nvidia-smi names them)"]),
        ("more asked for than is free", {"devices": "NVIDIA L4,8.9,24G,20G"}, "cuda,vram=5G", 1,
         ["only 4.00 GiB of the NVIDIA L4's 24.0 GiB are free, and vram=5GiB is asked for", "lower vram="]),
        ("vram larger than the card", {"devices": "NVIDIA L4,8.9,24G"}, "cuda:0,vram=25G", 2,
         ["vram=25GiB is larger than the card: the NVIDIA L4 has 24.0 GiB"]),
        ("an unknown index", {"devices": "NVIDIA L4,8.9,24G;NVIDIA L4,8.9,24G"}, "cuda:2", 2,
         ["there is no CUDA device 2; this machine has 2, counted from 0"]),
        ("a device that has fallen off", {"faults": "fall-off=probe:0"}, "cuda", 1, ["no CUDA device: unknown error"]),
        ("a faulty card", {"devices": "NVIDIA L4,8.9,24G;NVIDIA L4,8.9,24G", "faults": "faulty-card=0"}, "cuda:0", 1, [
            "the card, NVIDIA L4, is faulty: uncorrectable ECC error encountered; see nvidia-smi and dmesg",
            "usable here: cuda:1"
        ]),
        ("no plugin", {"plugin": "/nowhere/libmoestro_cuda.so"}, "cuda", 2,
         ["the CUDA plugin is not built: there is no /nowhere/libmoestro_cuda.so"]),
        ("no plugin but another library", {"plugin": BIN / "moestro-worker"}, "cuda", 2,
         ["the CUDA plugin cannot be loaded"]),
    ]

    def test_a_worker_says_why_in_one_line(self):
        for name, settings, device, exit_code, words in self.CASES:
            with self.subTest(name):
                ran = worker(device, **settings)
                self.assertEqual(ran.returncode, exit_code, ran.stderr)
                said = [line for line in ran.stderr.splitlines() if line.startswith("moestro-worker: ")]
                self.assertEqual(len(said), 1, ran.stderr)
                self.assertIn("--device " + device, said[0])
                for word in words:
                    self.assertIn(word, said[0])

    def test_keys_and_values_go_to_host_memory_from_a_gpu_alone(self):
        ran = subprocess.run(
            [BIN / "moestro-worker", "--run-dir", "/nowhere", "--model", "m", "--kv-host-tokens", "64"],
            capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertIn("--kv-host-tokens is for a GPU", ran.stderr)

    def test_what_nobody_finds_again_is_not_kept_in_host_memory(self):
        with tempfile.TemporaryDirectory() as directory:
            box = pathlib.Path(directory, "box.yaml")
            box.write_text("workers:\n  device: cuda\n  kv_host_tokens: 64\norchestrator:\n  prefix_cache: false\n")
            ran = subprocess.run([BIN / "moestro-worker", "-c", box, "--run-dir", directory, "--model", "m"],
                                 capture_output=True, text=True, env=environment(), timeout=60)
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertIn("orchestrator.prefix_cache is off", ran.stderr)

    def test_what_is_no_device_is_a_wrong_command_line(self):
        for device, word in (("cuda:x", "'x' is not the number of a device"), ("cuda,vram=lots",
                                                                               "'lots' is not a size"),
                             ("cuda,vram=0", "leaves no memory"), ("cuda:0,link=1G", "'link=1G' is not vram=SIZE")):
            ran = worker(device)
            self.assertEqual(ran.returncode, 2, ran.stderr)
            self.assertIn(word, ran.stderr)

    def test_a_driver_that_is_asked_for_nothing_is_not_asked(self):
        ran = worker("cpu", faults="no-driver")
        self.assertNotIn("CUDA", ran.stderr)
        self.assertIn("store", ran.stderr)


class RefusalsOfUp(DemoTest):
    def test_up_refuses_as_a_worker_would_before_anything_is_made(self):
        for name, settings, device, exit_code, words in Refusals.CASES:
            with self.subTest(name), tempfile.TemporaryDirectory() as directory:
                run_dir = pathlib.Path(directory, "run")
                ran = subprocess.run([
                    BIN / "moestro", "up", "--model", self.pack, "--run-dir", run_dir, "--http", "127.0.0.1:0",
                    "--device", device
                ], capture_output=True, text=True, env=environment(**settings), timeout=60)
                self.assertEqual(ran.returncode, exit_code, ran.stderr)
                self.assertEqual(len(ran.stderr.splitlines()), 1, ran.stderr)
                for word in words:
                    self.assertIn(word, ran.stderr)
                self.assertFalse(run_dir.exists())


class Doctor(unittest.TestCase):
    def findings(self, **settings):
        ran = subprocess.run([BIN / "moestro", "doctor", "--json"], capture_output=True, text=True,
                             env=environment(**settings), timeout=60)
        self.calm = getattr(self, "calm", None) or subprocess.run([BIN / "moestro", "doctor"],
                                                                  capture_output=True).returncode
        self.assertEqual(ran.returncode, self.calm, "GPUs do not change doctor's exit code")
        return {
            finding["topic"]: finding
            for finding in json.loads(ran.stdout)["findings"]
            if finding["topic"].startswith("GPU")
        }

    def test_each_device_is_named_with_what_it_lacks(self):
        found = self.findings(devices="NVIDIA H200,9.0,139G,1G,0000:17:00.0;Tesla T4,7.5,16G;NVIDIA L4,8.9,24G,24G")
        self.assertEqual(sorted(found), ["GPU 0", "GPU 1", "GPU 2"])
        self.assertIn("NVIDIA H200, compute capability 9.0, 138 GiB of 139 GiB free, at 0000:17:00.0",
                      found["GPU 0"]["found"])
        self.assertIn("too old, the kernels need 8.0", found["GPU 1"]["found"])
        self.assertIn("other processes have its memory", found["GPU 2"]["found"])
        self.assertIn("nvidia-smi", found["GPU 2"]["mend"])

    def test_a_faulty_card_is_named_beside_the_others(self):
        found = self.findings(devices="NVIDIA L4,8.9,24G;NVIDIA L4,8.9,24G", faults="faulty-card=1")
        self.assertIn("24.0 GiB free", found["GPU 0"]["found"])
        self.assertIn("faulty: uncorrectable ECC error encountered", found["GPU 1"]["found"])

    def test_why_there_is_none(self):
        self.assertIn("CUDA driver version is insufficient", self.findings(faults="no-driver")["GPU"]["found"])
        self.assertIn("driver", self.findings(faults="no-driver")["GPU"]["mend"])
        self.assertIn("the CUDA plugin is not built",
                      self.findings(plugin="/nowhere/libmoestro_cuda.so")["GPU"]["found"])


class Serving(DemoTest):
    def test_workers_are_spread_over_devices(self):
        cluster = Cluster(self.pack, "--workers", "2", "--device", "cuda",
                          env=environment("NVIDIA H200,9.0,8G,0,0000:17:00.0;Tesla T4,7.5,8G;NVIDIA L4,8.9,8G"))
        with cluster:
            self.assertEqual(
                cluster.complete(PROMPTS[0], max_tokens=4, ignore_eos=True)["usage"]["completion_tokens"], 4)
        self.assertIn("worker-0 on cuda:0, NVIDIA H200 (0000:17:00.0)", cluster.log_text)
        self.assertIn("worker-1 on cuda:2, NVIDIA L4", cluster.log_text)

    def test_a_faulty_card_is_left_alone(self):
        cluster = Cluster(self.pack, "--device", "cuda", env=environment("NVIDIA L4,8.9,8G;NVIDIA L4,8.9,8G",
                                                                         faults="faulty-card=0"))
        with cluster:
            self.assertEqual(
                cluster.complete(PROMPTS[0], max_tokens=4, ignore_eos=True)["usage"]["completion_tokens"], 4)
        self.assertIn(
            "worker-0 on cuda:1, NVIDIA L4; cuda:0 is left alone: the card, NVIDIA L4, is faulty: uncorrectable ECC",
            cluster.log_text)

    def refused_by_its_worker(self, *options, pack=None, **settings):
        with self.assertRaises(AssertionError) as refused:
            Cluster(pack or self.pack, *options, env=environment(**settings)).__enter__()
        return str(refused.exception)

    def test_bf16_in_12_bits_is_refused_by_name(self):
        experts = pack(DEMO, self.dir.name + "/narrow-experts", "--experts", "bf16-12bit,bf16")
        self.assertIn("experts as bf16-12bit on this device; choose another with --precision",
                      self.refused_by_its_worker("--device", "cuda", pack=experts))
        with Cluster(experts, "--device", "cuda", "--precision", "bf16", env=environment()) as cluster:
            self.assertEqual(
                cluster.complete(PROMPTS[0], max_tokens=4, ignore_eos=True)["usage"]["completion_tokens"], 4)
        dense = pack(DEMO, self.dir.name + "/narrow-dense", "--dense", "bf16-12bit")
        self.assertRegex(self.refused_by_its_worker("--device", "cuda", pack=dense),
                         "tensor '.*' as bf16-12bit on this device")

    def test_what_cannot_fit_is_refused_with_what_would_do(self):
        self.assertRegex(self.refused_by_its_worker("--device", "cuda,vram=1M"),
                         r"vram=\d+MiB is the least for this model, vram=1MiB is given: .*raise it, or take")
        self.assertRegex(self.refused_by_its_worker("--device", "cuda", devices="Small,9.0,150M"),
                         "device memory are the least for this model: .*or a larger card")

    def test_memory_that_others_have_may_come_back(self):
        self.assertRegex(
            self.refused_by_its_worker("--device", "cuda", devices="Shared,9.0,8G,8042M"),
            "150 MiB of the Shared's 8.00 GiB are free, 128 MiB of it left to the driver; CUDA itself and other "
            "processes have the rest"
        )

    def test_tokens_are_the_cpus_however_little_memory_there_is(self):
        def tokens(*options, **settings):
            with Cluster(self.pack, "--deterministic", "--kv-tokens", "1024", *options,
                         env=environment(**settings)) as cluster:
                answer = cluster.complete(PROMPTS[0], max_tokens=8, temperature=0, ignore_eos=True,
                                          return_token_ids=True)
            return answer["choices"][0]["token_ids"], cluster.log_text

        calm, _ = tokens("--device", "cpu")
        few, log = tokens("--device", "cuda,vram=44M")
        self.assertEqual(few, calm)
        slots, experts = map(int, re.search(r"(\d+) of (\d+) experts fit the device", log).groups())
        self.assertLess(slots, experts, "some have to make room for others")
        self.assertRegex(log, r"B of the store's memory registered with cuda:0, in")
        self.assertNotIn("staged", log)
        staged, log = tokens("--device", "cuda,vram=44M", faults="refuse-register")
        self.assertEqual(staged, calm)
        self.assertIn("copies from the rest are staged, which is slow: operation not supported", log)

    def test_tokens_are_the_cpus_where_dense_weights_take_turns(self):
        """On a device that refuses the model without: with the least that it names, and with none of them staying."""
        options = ("--deterministic", "--kv-tokens", "1024")

        def least(device):
            refused = self.refused_by_its_worker(*options, "--device", device)
            self.assertIn("raise it, or take", refused)
            return int(re.search(r"vram=(\d+)MiB is the least", refused)[1]), refused

        def tokens(device):
            with Cluster(self.pack, *options, "--device", device, env=environment()) as cluster:
                answer = cluster.complete(PROMPTS[0], max_tokens=8, temperature=0, ignore_eos=True,
                                          return_token_ids=True)
                status = cluster.request("GET", "/v1/moestro/status")[1]
            return answer["choices"][0]["token_ids"], status, cluster.log_text

        all_stay, said = least("cuda,vram=1M")
        self.assertIn("or dense=counted in --device, so that layers' dense weights take turns there", said)
        in_turn, said = least("cuda,vram=1M,dense=counted")
        self.assertIn("dense weights, whose layers then take turns, ", said)
        self.assertLess(in_turn, all_stay)
        calm, _, _ = tokens("cpu")
        for device in (f"cuda,vram={in_turn}M,dense=counted", "cuda,vram=44M,dense=0%"):
            said, _, log = tokens(device)
            self.assertEqual(said, calm, device)
            self.assertRegex(log, r"dense weights of \d+ of \d+ layers stay on the device, each step copies .* over")
            self.assertRegex(log, r"memory of the device: dense weights of \d+/\d+ layers")
        said, _, log = tokens("cuda,vram=44M,dense=counted")
        self.assertEqual(said, calm)
        self.assertNotIn("each step copies", log, "where all fit nothing is different")

    def test_keys_and_values_that_made_room_come_back_from_host_memory(self):
        """Three prompts in turn, of which the device's cache holds one."""
        prompts = [DEMO_IDS[at:at + 35] for at in (0, 35, 70)]

        def ask(cluster, ids):
            answer = cluster.complete(ids, max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True,
                                      logprobs=1)
            return (answer["choices"][0]["token_ids"],
                    answer["choices"][0]["logprobs"]), answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        options = ("--deterministic", "--device", "cuda", "--kv-tokens", "48")
        with Cluster(self.pack, *options, env=environment()) as cluster:
            calm = [ask(cluster, ids) for ids in prompts]
            self.assertEqual([cached for _, cached in calm], [0, 0, 0])
            self.assertEqual(ask(cluster, prompts[0])[1], 0, "all of it had to make room")
        with Cluster(self.pack, *options, "--kv-host-tokens", "320", env=environment()) as cluster:
            self.assertEqual([ask(cluster, ids) for ids in prompts], calm)
            again = [ask(cluster, ids) for ids in prompts]
            self.assertEqual([said for said, _ in again], [said for said, _ in calm])
            self.assertEqual([cached for _, cached in again], [32, 32, 32])
            self.assertEqual(cluster.request("GET", "/v1/moestro/status")[1]["kv_blocks"]["host"]["total"], 20)
            metrics = cluster.request("GET", "/metrics")[1]
            moved = {
                name: int(re.search(rf"^moestro_kv_moved_{name}_tokens_total (\d+)", metrics, re.M)[1])
                for name in ("in", "out")
            }
            self.assertGreaterEqual(moved["in"], 3 * 32)
            self.assertGreater(moved["out"], 2 * 32)
        self.assertIn("320 more in host memory", cluster.log_text)

    def test_a_batch_whose_keys_and_values_are_at_home_in_host_memory(self):
        """Many sequences at once, of which the device's ring holds a few: each says what it says alone on the CPU."""
        def said(*options, **settings):
            with Cluster(self.pack, *options, "--kv-tokens", "4096", "--context", "128",
                         env=environment(**settings)) as cluster:
                streams = self.run_streams(cluster, PROMPTS, 12)
                metrics = cluster.request("GET", "/metrics")[1]
            return streams, metrics, cluster.log_text

        calm, _, _ = said("--deterministic", "--device", "cpu")
        device = ("--device", "cuda,vram=44M", "--kv-home", "host", "--kv-ring-tokens", "384", "--micro-batches", "3")
        streams, metrics, log = said("--deterministic", *device)
        self.assertEqual(streams, calm)
        self.assertRegex(log, r"memory of the device: KV cache +\d+")
        for way in ("in", "out"):
            self.assertRegex(metrics, rf"(?m)^moestro_device_kv_{way}_bytes_total\{{[^}}]*\}} [1-9]")
        self.assertIn("not launched as graphs: the schedule is not layerwise", log)
        streams, _, log = said(*device, "--schedule", "cgo")
        self.assertEqual({prompt: len(ids) for prompt, ids in streams.items()}, dict.fromkeys(PROMPTS, 12))
        self.assertIn("the host attends to what decodes", log)
        refused = self.refused_by_its_worker("--deterministic", *device, "--schedule", "cgo")
        self.assertIn("--schedule cgo with --deterministic on a GPU", refused)

    def test_experts_on_the_cpu_and_layers_queued_again_are_counted(self):
        """Few slots, so that some miss; a link that seems slow, so that the CPU is worth it. Whether a miss is known
        before its layer is queued, and goes to the CPU, or only afterwards, and is queued again, depends on who is
        faster here; cuda_engine_test and cuda_late_streams_test have either."""
        prompts = itertools.cycle(PROMPTS)
        with Cluster(self.pack, "--kv-tokens", "1024", "--device", "cuda,vram=44M",
                     env=environment(faults="slow-copies=100")) as cluster:
            def device():
                cluster.complete(next(prompts), max_tokens=12, temperature=0, ignore_eos=True)
                return cluster.request("GET", "/v1/moestro/status")[1]["tiers"]["device"]

            def counted():
                figures = device()
                return figures["host_experts"] + figures["rewinds"] > 0

            cluster.wait_until(counted, 120, what="an expert on the CPU, or a layer that is queued again")
            cluster.wait_until(lambda: cluster.request("GET", "/v1/moestro/status")[1]["sequences"]["running"] == 0,
                               what="rest")
            told = cluster.request("GET", "/v1/moestro/status")[1]
            metrics = cluster.request("GET", "/metrics")[1]
        of_all, of_one = told["tiers"]["device"], told["workers"][0]["device_memory"]
        self.assertGreaterEqual(of_all["host_rows"], of_all["host_experts"])
        for name in ("host_experts", "host_rows", "rewinds"):
            self.assertEqual(of_all[name], of_one[name])
            self.assertRegex(metrics, rf"(?m)^moestro_device_{name}_total\{{[^}}]*\}} {of_all[name]}$")

    def test_a_worker_on_a_gpu_and_the_store_are_killed(self):
        """Copies are under way from the arena of a store that dies, and of a worker that does: of experts, and of dense
        weights; and of KV between the device and host memory."""
        with Cluster(self.pack, "--deterministic") as cluster:
            calm = self.run_streams(cluster, PROMPTS, 10)
        for device in (["cuda,vram=48M"], ["cuda,vram=48M,dense=0%"], ["cuda,vram=48M", "--kv-home", "host"]):
            with Cluster(self.pack, "--deterministic", "--kv-tokens", "2048", "--device", *device,
                         env=environment()) as cluster:
                for program in ("moestro-store", "moestro-worker"):
                    victim = cluster.children(program)[0]
                    self.assertEqual(
                        self.run_streams(cluster, PROMPTS, 10, lambda: os.kill(victim, signal.SIGKILL), after=12),
                        calm, (device, program))

    def test_a_device_that_falls_off_loses_and_repeats_nothing(self):
        fallen = pathlib.Path(self.dir.name, "fallen")
        with Cluster(self.pack, "--deterministic") as cluster, open(pathlib.Path(self.dir.name, "gpu.log"),
                                                                    "w+") as log:
            gpu = subprocess.Popen(
                [BIN / "moestro-worker", "-c", cluster.dir / "run" / "box.yaml", "--name", "gpu", "--device", "cuda"],
                stderr=log, stdout=log, env=environment(fallen=fallen))
            try:
                def plans():
                    return next((w["plans"]
                                 for w in cluster.request("GET", "/v1/moestro/status")[1]["workers"]
                                 if w["name"] == "gpu"), None)

                def fall():
                    cluster.wait_until(lambda: plans() > 0, what="a step on the GPU")
                    fallen.write_text("x")

                cluster.wait_until(lambda: plans() is not None, what="a worker on the GPU")
                stormy = self.run_streams(cluster, PROMPTS, 48, fall, after=20)
                self.assertEqual(gpu.wait(60), 1, "another start may help")
            finally:
                if gpu.poll() is None:
                    gpu.kill()
                    gpu.wait()
            log.seek(0)
            said = [line for line in log.read().splitlines() if line.startswith("moestro-worker: gpu: ")]
            self.assertEqual(len(said), 1, said)
            self.assertIn("unknown error", said[0])
            # Only now: prompts go where they have been before, and the GPU would have none of them.
            self.assertEqual(stormy, self.run_streams(cluster, PROMPTS, 48))


if __name__ == "__main__":
    main()
