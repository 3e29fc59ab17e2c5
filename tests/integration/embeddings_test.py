"""/v1/embeddings over real processes: the demo model's hidden states are those of transformers, whatever else runs and
whatever dies."""

import base64
import concurrent.futures
import json
import math
import os
import re
import signal
import struct

from batch_box import BatchTest
from cluster import DEMO, Cluster, main, moestro

REFERENCE = json.loads((DEMO / "reference.json").read_text())["prompts"]
LOGPROB_ERROR_MAX = 2e-2  # bf16 weights; the reference computes in float32 over the same rounded weights
TEXTS = [p["ids"] for p in REFERENCE]
LONG = [token for text in TEXTS for token in text] * 2  # of several steps
SMALL_STEPS = ("--deterministic", "--step-tokens", "48")


def embedding_rows():
    """The rows of the demo model's embedding, which is its head too."""
    with open(DEMO / "model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensor = json.loads(file.read(length))["model.embed_tokens.weight"]
        assert tensor["dtype"] == "BF16"
        begin, end = tensor["data_offsets"]
        file.seek(8 + length + begin)
        halves = struct.unpack(f"<{(end - begin) // 2}H", file.read(end - begin))
    values = struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves)))
    width = tensor["shape"][1]
    return [values[i:i + width] for i in range(0, len(values), width)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class Embeddings(BatchTest):
    def embed(self, cluster, given, **options):
        status, body = cluster.request("POST", "/v1/embeddings", {"input": given, **options})
        self.assertEqual(status, 200, body)
        return body

    def vector(self, cluster, given, **options):
        return self.embed(cluster, given, **options)["data"][0]["embedding"]

    def test_the_head_makes_the_references_logprobs_of_the_last_state(self):
        rows = embedding_rows()
        with Cluster(self.pack, "--deterministic") as cluster:
            for prompt in REFERENCE[:3]:
                ids = prompt["ids"]
                for length in (1, len(ids) // 2, len(ids) - 1):
                    state = self.vector(cluster, ids[:length], normalize=False)
                    logits = [dot(row, state) for row in rows]
                    logprob = logits[ids[length]] - math.log(sum(map(math.exp, logits)))
                    self.assertAlmostEqual(logprob, prompt["logprobs"][length - 1], delta=LOGPROB_ERROR_MAX)

    def test_a_mean_is_that_of_the_last_states_of_all_prefixes(self):
        ids = TEXTS[1]
        with Cluster(self.pack, "--deterministic") as cluster:
            states = self.embed(cluster, [ids[:n] for n in range(1, len(ids) + 1)], normalize=False)["data"]
            self.assertEqual([s["index"] for s in states], list(range(len(ids))))
            want = [sum(column) / len(ids) for column in zip(*(s["embedding"] for s in states))]
            got = self.vector(cluster, ids, pooling="mean", normalize=False)
            self.assertEqual(len(got), 128)
            for a, b in zip(got, want):
                self.assertAlmostEqual(a, b, delta=1e-5)
            for pooling in ("last", "mean"):
                raw, unit = (self.vector(cluster, ids, pooling=pooling, normalize=n) for n in (False, True))
                self.assertAlmostEqual(dot(unit, unit), 1, delta=1e-5)
                for a, b in zip(raw, unit):
                    self.assertAlmostEqual(a / math.sqrt(dot(raw, raw)), b, delta=1e-6)

    def test_shapes_and_usage(self):
        with Cluster(self.pack) as cluster:
            body = self.embed(cluster, ["Once upon a time", "The price"], model="pack", user="u")
            self.assertEqual((body["object"], body["pooling"], body["normalize"]), ("list", "last", True))
            texts = ("Once upon a time", "The price")
            tokens = sum(cluster.request("POST", "/tokenize", {"prompt": t})[1]["count"] for t in texts)
            self.assertEqual((body["usage"]["prompt_tokens"], body["usage"]["total_tokens"]), (tokens, tokens))
            coded = self.vector(cluster, "Once upon a time", encoding_format="base64")
            self.assertEqual(struct.unpack("<128f", base64.b64decode(coded)),
                             struct.unpack("<128f", struct.pack("<128f", *body["data"][0]["embedding"])))
            status, error = cluster.request("POST", "/v1/embeddings", {"input": "a", "dimensions": 64})
            self.assertEqual((status, error["error"]["param"]), (400, "dimensions"))
            figures = cluster.request("GET", "/metrics")[1]
            self.assertEqual(re.search(r'^moestro_requests_total\{.*result="ok".*\} (\S+)$', figures, re.M)[1], "2")

    def everything(self, cluster, pool=None):
        calls = [(text, pooling) for text in [*TEXTS, LONG] for pooling in ("last", "mean")]
        run = pool.map if pool else map
        return list(run(lambda call: self.vector(cluster, call[0], pooling=call[1]), calls))

    def test_with_other_traffic_and_on_a_small_device_every_bit_is_the_same(self):
        with Cluster(self.pack, "--deterministic", "--no-prefix-cache") as cluster:
            alone = self.everything(cluster)
        for options in (SMALL_STEPS, (*SMALL_STEPS, "--device", "emulated:vram=2MiB,link=1GB/s")):
            with Cluster(self.pack, *options) as cluster, concurrent.futures.ThreadPoolExecutor(16) as pool:
                others = [pool.submit(cluster.complete, text, max_tokens=24, temperature=0) for text in TEXTS]
                self.assertEqual(self.everything(cluster, pool), alone, options)
                for other in others:
                    other.result()

    def test_last_reuses_prefixes_and_mean_does_not(self):
        def cached(body):
            return body["usage"]["prompt_tokens_details"]["cached_tokens"]

        with Cluster(self.pack, "--deterministic") as cluster:
            first = self.embed(cluster, LONG)
            again = self.embed(cluster, LONG)
            mean = self.embed(cluster, LONG, pooling="mean")
            self.assertEqual((cached(first), cached(again), cached(mean)), (0, (len(LONG) - 1) // 16 * 16, 0))
            self.assertEqual(again["data"], first["data"])

    def test_a_worker_killed_midway_changes_no_bit(self):
        # Each step takes a while: layers wait for their experts.
        slow = ("--deterministic", "--step-tokens", "16", "--device", "emulated:vram=2MiB,link=30MB/s")
        with Cluster(self.pack, "--deterministic") as cluster:
            want = [self.vector(cluster, LONG, pooling=p) for p in ("last", "mean")]
        with Cluster(self.pack, *slow) as cluster, concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(self.vector, cluster, LONG, pooling=p) for p in ("last", "mean")]

            def steps():
                return cluster.request("GET", "/v1/moestro/status")[1]["steps"]["count"]

            cluster.wait_until(lambda: steps() >= 4, what="some steps")
            self.assertFalse(any(a.done() for a in answers), "it was too fast: this proves nothing")
            os.kill(cluster.children("moestro-worker")[0], signal.SIGKILL)
            self.assertEqual([a.result() for a in answers], want)
            status = cluster.request("GET", "/v1/moestro/status")[1]
            self.assertEqual(status["workers_lost"], 1)

    def test_batches(self):
        lines = [{
            "custom_id": f"line-{i}", "method": "POST", "url": "/v1/embeddings",
            "body": {"input": TEXTS[i], "pooling": ("last", "mean")[i % 2]}
        } for i in range(len(TEXTS))]
        lines.append({"custom_id": "bad", "method": "POST", "url": "/v1/embeddings", "body": {"input": ""}})
        with Cluster(self.pack, "--deterministic") as cluster:
            url = ("--url", cluster.url)
            moestro("batch", "submit", self.write_input(lines), *url, "--wait", "--json", check=False)
            (batch,) = cluster.request("GET", "/v1/batches")[1]["data"]
            self.assertEqual(batch["request_counts"], {"total": 21, "completed": 20, "failed": 1})
            self.assertEqual(batch["endpoint"], "/v1/embeddings")
            self.assertEqual(batch["usage"]["input_tokens"], sum(map(len, TEXTS)))
            for i, answer in enumerate(self.results(cluster, batch)):
                self.assertEqual(answer["custom_id"], f"line-{i}")
                self.assertEqual(answer["response"]["body"]["data"][0]["embedding"],
                                 self.vector(cluster, TEXTS[i], pooling=("last", "mean")[i % 2]))


if __name__ == "__main__":
    main()
