"""Whole programs on a GPU, or, where MOESTRO_CUDA_PLUGIN names the emulated plugin, on that: tokens are the CPU's,
limits and faults are met. Exits with 77 where there is no device."""

import json
import os
import re
import signal
import sys
import threading
import unittest

from cluster import BIN, DEMO, Cluster, DemoTest, main, moestro

DEVICE = os.environ.get("MOESTRO_TEST_DEVICE", "cuda:0")
PLUGIN = os.environ.setdefault("MOESTRO_CUDA_PLUGIN", str(BIN / "libmoestro_cuda.so"))
EMULATED = "emulated" in os.path.basename(PLUGIN)
PROMPTS = json.loads((DEMO / "reference.json").read_text())["prompts"][: 2 if EMULATED else 20]
TOKENS = 8 if EMULATED else 48
# Sums are made in another order than the CPU's: log-probabilities differ by so much at most, and where two tokens are
# as likely as that, either may come.
LOGPROB_ERROR_MAX = 2e-3


def no_device():
    """Why there is none, in doctor's words; empty: there is one."""
    ran = moestro("doctor", "--json", check=False)
    found = [f for f in json.loads(ran.stdout)["findings"] if f["topic"].startswith("GPU ")]
    return "" if found else next(
        (f["found"] for f in json.loads(ran.stdout)["findings"] if f["topic"] == "GPU"), "no GPU")


def greedy(cluster, prompt):
    body = cluster.complete(prompt["ids"], max_tokens=TOKENS, temperature=0, ignore_eos=True, logprobs=1,
                            return_token_ids=True)
    choice = body["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


class Gpu(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with Cluster(cls.pack, "--deterministic") as cluster:
            cls.on_cpu = [greedy(cluster, p) for p in PROMPTS]

    def test_tokens_are_the_cpus(self):
        with Cluster(self.pack, "--deterministic", "--device", DEVICE) as cluster:
            for prompt, (ids, logprobs) in zip(PROMPTS, self.on_cpu):
                got_ids, got_logprobs = greedy(cluster, prompt)
                for i, (got, want) in enumerate(zip(got_logprobs, logprobs)):
                    self.assertLessEqual(abs(got - want), LOGPROB_ERROR_MAX, f"token {i} of {prompt['ids'][:4]}...")
                    if got_ids[i] != ids[i]:
                        break  # as likely as each other: what follows has another past
                else:
                    self.assertEqual(got_ids, ids)

    def test_the_fast_mode_answers_too(self):
        with Cluster(self.pack, "--device", DEVICE) as cluster:
            ids, logprobs = greedy(cluster, PROMPTS[0])
        self.assertEqual(len(ids), TOKENS)
        self.assertTrue(all(l <= 0 for l in logprobs), logprobs)

    def test_memory_for_some_of_the_experts_changes_no_bit(self):
        with self.assertRaises(AssertionError) as refused:
            Cluster(self.pack, "--device", DEVICE + ",vram=1M").__enter__()
        least = re.search(r"vram=(\d+)MiB is the least", str(refused.exception))
        self.assertTrue(least, refused.exception)
        results = []
        for device in (DEVICE, f"{DEVICE},vram={int(least.group(1)) + 1}MiB"):
            with Cluster(self.pack, "--deterministic", "--device", device) as cluster:
                results.append([greedy(cluster, p) for p in PROMPTS[:2]])
        self.assertEqual(*results)

    def test_a_worker_that_is_killed_loses_and_repeats_nothing(self):
        prompt = PROMPTS[0]
        with Cluster(self.pack, "--deterministic", "--device", DEVICE) as cluster:
            calm = greedy(cluster, prompt)[0]
            stormy, killed = [], threading.Event()
            for event in cluster.stream(
                    "/v1/completions", {
                        "prompt": prompt["ids"], "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                        "return_token_ids": True
                    }):
                for choice in event["choices"]:
                    stormy += choice.get("token_ids") or []
                if len(stormy) >= 2 and not killed.is_set():
                    killed.set()
                    os.kill(cluster.children("moestro-worker")[0], signal.SIGKILL)
        self.assertTrue(killed.is_set())
        self.assertEqual(stormy, calm)

    def test_what_the_machine_does_not_have_is_refused(self):
        for device, words in (("cuda:63", "there is no CUDA device 63"), (DEVICE + ",vram=1000000GiB",
                                                                          "is larger than the card")):
            self.assert_refused(words, "--device", device)


if __name__ == "__main__":
    why = no_device()
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    main()
