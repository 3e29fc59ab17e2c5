"""The demo model through HTTP equals transformers, whatever company a request keeps and however little memory there
is."""

import concurrent.futures
import json
import pathlib
import shutil

from cluster import DEMO, Cluster, DemoTest, expert_and_dense_bytes, main, pack
from safetensors_edit import swap_tensors

LOGPROB_ERROR_MAX = 2e-2  # bf16 weights; the reference computes in float32 over the same rounded weights
LOGPROB_ERROR_MAX_F32 = 1e-3
REFERENCE = json.loads((DEMO / "reference.json").read_text())["prompts"]


def scores(cluster, ids):
    """Log-probability of every prompt token but the first, as the server gives them."""
    body = cluster.complete(ids, max_tokens=0, echo=True, logprobs=1)
    return body["choices"][0]["logprobs"]["token_logprobs"][1:]


def greedy(cluster, ids, tokens):
    body = cluster.complete(ids, max_tokens=tokens, temperature=0, logprobs=1, ignore_eos=True, return_token_ids=True)
    choice = body["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def everything(cluster, prompt):
    return scores(cluster, prompt["ids"]), greedy(cluster, prompt["ids"], len(prompt["greedy"]["ids"]))


class Fidelity(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with Cluster(cls.pack, "--deterministic") as cluster:
            cls.alone = [everything(cluster, p) for p in REFERENCE]

    def worst_error(self, results):
        worst = 0.0
        for prompt, (scored, (ids, logprobs)) in zip(REFERENCE, results):
            self.assertEqual(len(scored), len(prompt["logprobs"]))
            errors = [abs(a - b) for a, b in zip(scored, prompt["logprobs"])]
            if ids == prompt["greedy"]["ids"]:
                errors += [abs(a - b) for a, b in zip(logprobs, prompt["greedy"]["logprobs"])]
            worst = max([worst, *errors])
        return worst

    def test_equals_the_reference_on_twenty_prompts(self):
        self.assertEqual(len(REFERENCE), 20)
        for prompt, (_, (ids, _)) in zip(REFERENCE, self.alone):
            self.assertEqual(ids, prompt["greedy"]["ids"], prompt["text"])
        self.assertLessEqual(self.worst_error(self.alone), LOGPROB_ERROR_MAX)

    def test_text_in_gives_the_reference_ids(self):
        with Cluster(self.pack) as cluster:
            for prompt in REFERENCE:
                self.assertEqual(
                    cluster.request("POST", "/tokenize", {"content": prompt["text"]})[1]["tokens"], prompt["ids"])
                self.assertEqual(
                    cluster.request("POST", "/detokenize", {"tokens": prompt["ids"]})[1]["content"], prompt["text"])

    def test_with_f32_weights_the_error_is_rounding_alone(self):
        """bf16 numbers are f32 numbers: the same weights, so the same reference, with the bound of f32."""
        wide = pack(DEMO, self.dir.name + "/f32-pack", "--experts", "f32", "--dense", "f32")
        with Cluster(wide) as cluster:
            results = [everything(cluster, p) for p in REFERENCE]
        for prompt, (_, (ids, _)) in zip(REFERENCE, results):
            self.assertEqual(ids, prompt["greedy"]["ids"], prompt["text"])
        self.assertLessEqual(self.worst_error(results), LOGPROB_ERROR_MAX_F32)

    def same_as_alone(self, *options, pack=None):
        """Bitwise: JSON carries every double exactly. Returns the figures of the tiers."""
        with Cluster(pack or self.pack, "--deterministic", *options) as cluster:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                together = list(pool.map(lambda p: everything(cluster, p), REFERENCE))
            tiers = cluster.request("GET", "/v1/moestro/status")[1]["tiers"]
        self.assertEqual(together, self.alone)
        return tiers

    def test_in_a_batch_of_16(self):
        self.same_as_alone()

    def test_in_chunks_of_7_tokens(self):
        self.same_as_alone("--step-tokens", "7")

    def test_with_room_for_4_experts_and_2_workers(self):
        expert, dense = expert_and_dense_bytes(self.pack)
        tiers = self.same_as_alone("--workers", "2", "--dram", str(dense + 4 * expert))
        self.assertNotIn("device", tiers)
        self.assertGreater(tiers["dram"]["misses"], 1000, "a tier of 4 experts must have been exchanged all the time")

    def test_with_room_for_a_quarter_of_the_experts_that_are_read_ahead_or_not(self):
        expert, dense = expert_and_dense_bytes(self.pack)
        for predict in ("none", "auto", "gate+eamc"):
            tiers = self.same_as_alone("--dram", str(dense + 32 * expert), "--predict", predict)
            self.assertGreater(tiers["dram"]["misses"], 50, predict)

    def test_on_an_emulated_device_that_holds_7_experts(self):
        expert, _ = expert_and_dense_bytes(self.pack)
        tiers = self.same_as_alone("--device", f"emulated:vram={7 * expert},link=500MB/s,latency=20us", "--predict",
                                   "auto")
        device = tiers["device"]
        self.assertGreater(device["misses"], 1000, "7 slots must have been exchanged all the time")
        self.assertGreater(device["evictions"], 1000)
        self.assertEqual((tiers["dram"]["hits"], tiers["dram"]["misses"]), (0, 0), "no worker computes in host memory")
        for name in ("hits", "misses", "late", "evictions", "prefetched", "prefetched_used", "prefetched_wasted"):
            self.assertEqual(sum(device["layers"][name]), device[name], name)
        self.assertEqual(device["slots"], 7)
        self.assertLessEqual(device["experts"], 7)
        self.assertGreaterEqual(device["moved_bytes"], (device["misses"] - device["late"]) * expert)
        self.assertGreater(device["link_busy_seconds"], device["moved_bytes"] / 500e6 * 0.9,
                           "the link carries no faster than it may")

    def test_on_two_emulated_devices_of_3_experts_over_4_in_host_memory(self):
        expert, dense = expert_and_dense_bytes(self.pack)
        self.same_as_alone("--workers", "2", "--dram", str(dense + 4 * expert), "--device",
                           f"emulated:vram={3 * expert},link=1GB/s", "--predict", "gate+eamc", "--cache", "lru")

    def test_of_bf16_in_12_bits_with_room_for_4_experts(self):
        narrow = pack(DEMO, self.dir.name + "/narrow-pack", "--experts", "bf16-12bit", "--dense", "bf16-12bit")
        expert, dense = expert_and_dense_bytes(narrow)
        wide_expert, wide_dense = expert_and_dense_bytes(self.pack)
        self.assertLess(expert, 0.85 * wide_expert)
        self.assertLess(dense, wide_dense)
        self.assertGreater(self.same_as_alone("--dram", str(dense + 4 * expert), pack=narrow)["dram"]["misses"], 1000)

    def test_without_io_uring(self):
        self.same_as_alone("--io", "pread")

    def test_two_swapped_experts_are_noticed(self):
        """The comparison above can fail: a model with two experts exchanged is not taken for the reference."""
        wrong = pathlib.Path(self.dir.name) / "swapped"
        shutil.copytree(DEMO, wrong)
        swap_tensors(wrong / "model.safetensors", "model.layers.2.mlp.experts.0.", "model.layers.2.mlp.experts.1.")
        with Cluster(pack(wrong, self.dir.name + "/swapped-pack"), "--deterministic") as cluster:
            results = [everything(cluster, p) for p in REFERENCE]
        self.assertGreater(self.worst_error(results), LOGPROB_ERROR_MAX)


if __name__ == "__main__":
    main()
