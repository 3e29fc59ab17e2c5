"""An expert with weights as large as floats can be: who is routed to it gets a 500 that says where, the others their
answers."""

import concurrent.futures
import pathlib
import re
import shutil
import struct
import tempfile
import unittest

from cluster import DEMO, Cluster, main, pack
from safetensors_edit import fill_tensors

LAYER = 2
HUGE_BF16 = struct.pack("<H", 0x7f00)  # 1.7e38: a number, so it is packed; its products are none


class NonFinite(unittest.TestCase):
    def test_who_needs_the_expert_fails_alone(self):
        with tempfile.TemporaryDirectory() as directory:
            model = pathlib.Path(directory) / "huge"
            shutil.copytree(DEMO, model)
            fill_tensors(model / "model.safetensors", f"model.layers.{LAYER}.mlp.experts.0.", HUGE_BF16)
            good, bad = pack(DEMO, directory + "/good"), pack(model, directory + "/bad")
            requests = [{
                "prompt": [token, token + 7, token + 3], "max_tokens": 2, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True
            } for token in range(10, 250, 10)]
            with Cluster(good) as cluster:
                wanted = self.answers(cluster, requests)
            with Cluster(bad) as cluster:
                for _ in range(2):  # the second time in KV blocks that failed sequences have had
                    got = self.answers(cluster, requests)
                    failed = [answer for status, answer in got if status == 500]
                    self.assertTrue(0 < len(failed) < len(got), f"{len(failed)} of {len(got)} have failed")
                    for (status, answer), (_, good_answer) in zip(got, wanted):
                        if status == 200:
                            self.assertEqual(answer["choices"][0]["token_ids"], good_answer["choices"][0]["token_ids"])
                        else:
                            self.assertEqual(status, 500, answer)
                            self.assertRegex(answer["error"]["message"],
                                             rf"layer {LAYER}: .* of 128 values .* at position \d+")
                self.assertEqual(cluster.request("GET", "/health")[0], 200)
                figures = cluster.request("GET", "/metrics")[1]
                counted = float(re.search(r"^moestro_nonfinite_sequences_total (\S+)$", figures, re.M)[1])
                self.assertEqual(counted, 2 * len(failed))
                workers = cluster.children("moestro-worker")
                self.assertEqual(len(workers), 1)

    def answers(self, cluster, requests):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda body: cluster.request("POST", "/v1/completions", body), requests))


if __name__ == "__main__":
    main()
