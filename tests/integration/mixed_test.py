"""Low copies of missing experts: `--mixed` with real processes, on the CPU with a small arena and on an emulated
device."""

from cluster import Cluster, DemoTest, main

PROMPT = "Once upon a time there was a"
GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}
FULL = {"moestro": {"mixed": False}}


class Mixed(DemoTest):
    PACK_OPTIONS = ("--experts", "bf16,int4")

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

    def test_on_an_emulated_device(self):
        self.check("--device", "emulated:vram=1MiB,link=1GB/s")

    def test_on_the_cpu_with_a_small_arena(self):
        self.check("--dram", "5MiB")

    def test_what_cannot_be_is_refused_by_name(self):
        for options, why in ((("--mixed", "int4", "--deterministic"), "exclude each other"),
                             (("--mixed", "int8"), "has its experts as bf16, int4"),
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
