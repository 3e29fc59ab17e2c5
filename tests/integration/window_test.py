"""With a window and sinks, sequences run on beyond the KV cache and the model's context, with the tokens that a large
cache gives."""

import concurrent.futures
import json

from cluster import DEMO, Cluster, DemoTest, main, pack

TEXTS = [p["ids"] for p in json.loads((DEMO / "reference.json").read_text())["prompts"]]
WINDOW = ("--deterministic", "--kv-sinks", "4", "--kv-window", "48")
SMALL = (*WINDOW, "--kv-tokens", "128", "--step-tokens", "24"
        )  # 8 blocks; one sequence sees up to 5, and writes to 2 more
LONG = [token for _ in range(3) for text in TEXTS for token in text][:600]


def greedy(cluster, ids, tokens):
    body = cluster.complete(ids, max_tokens=tokens, temperature=0, logprobs=1, ignore_eos=True, return_token_ids=True)
    choice = body["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["finish_reason"]


class Window(DemoTest):
    def answers(self, *options):
        """Of long prompts at once; then of one again, which finds what is left of itself."""
        prompts = [LONG, LONG[:450] + TEXTS[3], TEXTS[0], TEXTS[1] * 20]
        with Cluster(self.pack, *options) as cluster:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                together = list(pool.map(lambda p: greedy(cluster, p, 60), prompts))
            again = greedy(cluster, LONG, 60)
            used = cluster.request("GET", "/v1/moestro/status")[1]["kv_blocks"]["used"]
        self.assertEqual(again, together[0])
        self.assertEqual(used, 0)
        return together

    def test_the_cache_may_be_smaller_than_any_prompt(self):
        large = self.answers(*WINDOW, "--no-prefix-cache")
        self.assertEqual(self.answers(*SMALL), large)
        self.assertEqual(self.answers(*SMALL, "--no-prefix-cache"), large)
        self.assertEqual(self.answers(*WINDOW), large)

    def test_twenty_times_the_cache(self):
        with Cluster(self.pack, *SMALL) as cluster:
            tokens, logprobs, reason = greedy(cluster, TEXTS[0], 20 * 128)
        self.assertEqual((len(tokens), len(logprobs), reason), (2560, 2560, "length"))


if __name__ == "__main__":
    main()
