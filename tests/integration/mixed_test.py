"""Low copies of missing experts: `--mixed` with real processes, on the CPU with a small arena and on an emulated
device."""

import json
import tempfile
from pathlib import Path

from cluster import Cluster, DemoTest, main, moestro

PROMPT = "Once upon a time there was a"
GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}
FULL = {"moestro": {"mixed": False}}


class Mixed(DemoTest):
    PACK_OPTIONS = ("--experts", "bf16,int4,int2")

    def check(self, *options):
        with Cluster(self.pack, *options) as plain:
            reference = plain.complete(PROMPT, **GREEDY)
            self.assertNotIn("moestro", reference["usage"])
            status, refused = plain.request("POST", "/v1/completions", {"prompt": "a", "moestro": {"mixed": True}})
            self.assertEqual(status, 400)
            self.assertIn("no worker with --mixed is connected", refused["error"]["message"])
        with Cluster(self.pack, *options, "--mixed", "int4,t1=0") as mixed:
            full = mixed.complete(PROMPT, **GREEDY, **FULL)
            self.assertEqual(full["choices"][0]["token_ids"], reference["choices"][0]["token_ids"])
            self.assertEqual(full["usage"]["moestro"], {"low_share": 0, "skipped_share": 0})
            low = 0
            for text in (PROMPT, "def main():", "Mix the flour with"):
                usage = mixed.complete(text, **GREEDY)["usage"]["moestro"]
                self.assertEqual(usage["skipped_share"], 0)
                low = max(low, usage["low_share"])
            self.assertGreater(low, 0)
            self.assertLessEqual(low, 0.5, "a token's first expert is waited for")
            counted = mixed.request("GET", "/v1/moestro/status")[1]["mixed"]
            self.assertGreater(counted["low"], 0)
            tier = "device" if "--device" in options else "dram"
            self.assertEqual(list(counted["layers"]), [tier])
            self.assertEqual(sum(counted["layers"][tier]["low"]), counted["low"])
            model = mixed.request("GET", "/v1/moestro/status")[1]["store"]["models"][0]
            self.assertEqual(model["experts"], 128, "each once, in whatever precisions the pack has it")
            self.assertLessEqual(model["resident_experts"], 128)
            self.limited_requests(mixed, low)
            self.other_apis(mixed)
            self.lines_of_batches(mixed)
        with Cluster(self.pack, *options, "--mixed", "int4,t1=0", "--mixed-max-share", "0.1",
                     "--mixed-warn-share", "0.02") as limited:
            shares = []
            for text in (PROMPT, "def main():", "Mix the flour with"):
                status, answer, headers = self.post(limited, "/v1/completions", {"prompt": text, **GREEDY})
                self.assertEqual(status, 200)
                share = answer["usage"]["moestro"]["low_share"]
                said = headers.get("X-Moestro-Low-Share")
                self.assertEqual(said, f"{share:.4f}" if share > 0.02 else None)
                shares.append(share)
            self.assertLessEqual(max(shares), 0.1)
            self.assertGreater(max(shares), 0.02)

    def limited_requests(self, cluster, unbound):
        """A text that was not computed before is limited by the request."""
        text = "It was a dark and stormy night"
        for share in (0, 0.05):
            usage = cluster.complete(text, **GREEDY, moestro={"mixed_max_share": share})["usage"]
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], 0, "of another limit")
            self.assertLessEqual(usage["moestro"]["low_share"], share)
            self.assertLess(share, unbound)
        for bad in (1.5, -1, "much"):
            status, refused = cluster.request("POST", "/v1/completions",
                                              {"prompt": "a", "moestro": {"mixed_max_share": bad}})
            self.assertEqual((status, refused["error"]["param"]), (400, "mixed_max_share"))

    def other_apis(self, cluster):
        chat = [{"role": "user", "content": "Tell me a story"}]
        for path, body, where in (("/v1/messages", {"messages": chat, "max_tokens": 16}, "usage"),
                                  ("/v1/responses", {"input": "Tell me a tale", "max_output_tokens": 16}, "usage"),
                                  ("/completion", {"prompt": "Tell me a joke", "n_predict": 16}, None)):
            status, answer = cluster.request("POST", path, body)
            self.assertEqual(status, 200, answer)
            self.assertGreater((answer[where] if where else answer)["moestro"]["low_share"], 0, path)
            status, answer = cluster.request("POST", path, {**body, **FULL})
            self.assertEqual((answer[where] if where else answer)["moestro"]["low_share"], 0, path)

    def lines_of_batches(self, cluster):
        """A line's result has its shares, and its body may turn low copies off."""
        body = {"prompt": "Long ago and far away", "max_tokens": 16}
        with tempfile.TemporaryDirectory() as folder:
            lines, results = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
            lines.write_text("".join(json.dumps({"custom_id": name, "method": "POST", "url": "/v1/completions",
                                                 "body": {**body, **own}}) + "\n"
                                     for name, own in (("any", {}), ("full", FULL))))
            moestro("batch", "run", str(lines), "-o", str(results), "--url", cluster.url)
            shares = {r["custom_id"]: r["response"]["body"]["usage"]["moestro"]["low_share"]
                      for r in map(json.loads, results.read_text().splitlines())}
        self.assertGreater(shares["any"], 0)
        self.assertEqual(shares["full"], 0)

    @staticmethod
    def post(cluster, path, body):
        connection = cluster.connect()
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer, response.headers

    def test_on_an_emulated_device(self):
        self.check("--device", "emulated:vram=1MiB,link=1GB/s")

    def test_on_the_cpu_with_a_small_arena(self):
        self.check("--dram", "5MiB")

    def test_copies_of_two_bits(self):
        with Cluster(self.pack, "--dram", "4MiB", "--mixed", "int2,t1=0") as mixed:
            shares = [mixed.complete(text, **GREEDY)["usage"]["moestro"] for text in (PROMPT, "def main():")]
            self.assertGreater(max(s["low_share"] for s in shares), 0)
        with Cluster(self.pack, "--precision", "int2") as alone:
            self.assertEqual(len(alone.complete(PROMPT, **GREEDY)["choices"][0]["token_ids"]), 24)

    def test_what_cannot_be_is_refused_by_name(self):
        for options, why in ((("--mixed", "int4", "--deterministic"), "exclude each other"),
                             (("--mixed", "int8"), "has its experts as bf16, int4, int2"),
                             (("--mixed-max-share", "0.5"), "--mixed is off"),
                             (("--mixed", "int4", "--mixed-max-share", "1.5"), "is not above 0 and at most 1"),
                             (("--mixed", "int4", "--mixed-max-share", "nan"), "'nan' is not a number"),
                             (("--mixed", "int4,t1=0.9,t2=0.1"), "t1=0.9 is above t2=0.1"),
                             (("--mixed", "int4,t2=nan"), "'nan' is not a number from 0 to 1"),
                             (("--mixed", "int4", "--schedule", "expert-pipeline"), "leave out --schedule"),
                             (("--mixed", "int4", "--device", "emulated:vram=1MiB,link=1GB/s", "--kv-home", "host"),
                              "leave out --kv-home host"),
                             (("--mixed", "int8", "--device", "emulated:vram=1MiB,link=1GB/s"),
                              "has no experts as int8; `moestro pack --experts`"),
                             (("--mixed", "int4", "--device", "cuda"), "--mixed on a GPU")):
            cluster = Cluster(self.pack, *options)
            with self.assertRaises(AssertionError):
                cluster.__enter__()
            self.assertIn(why, cluster.log_text, options)


if __name__ == "__main__":
    main()
