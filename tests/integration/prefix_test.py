"""Requests that begin alike share KV blocks; the answers are bitwise those of a server that computes every prompt
anew."""

import concurrent.futures
import json
import os
import signal
import statistics
import time

from cluster import DEMO, Cluster, DemoTest, main, pack

TEXTS = [p["ids"] for p in json.loads((DEMO / "reference.json").read_text())["prompts"]]
LONG = [token for text in TEXTS for token in text][:448]
LONG += [LONG[i * 7 % len(LONG)] for i in range(448 - len(LONG))]  # 28 blocks of 16


def greedy(cluster, ids, tokens=8):
    """What is to be equal, and how many of the prompt's tokens were found."""
    body = cluster.complete(ids, max_tokens=tokens, temperature=0, logprobs=2, ignore_eos=True, return_token_ids=True)
    choice = body["choices"][0]
    return (choice["token_ids"], choice["logprobs"]), body["usage"]["prompt_tokens_details"]["cached_tokens"]


def conversation(cluster, ids, turns):
    """Each turn is the one before with its answer and some more."""
    answers, cached = [], []
    for turn in range(turns):
        answer, found = greedy(cluster, ids, 20)
        answers.append(answer)
        cached.append(found)
        ids = ids + answer[0] + TEXTS[turn]
    return answers, cached


def first_token_seconds(cluster, ids):
    begin, first = time.monotonic(), None
    for event in cluster.stream("/v1/completions",
                                {"prompt": ids, "max_tokens": 2, "temperature": 0, "ignore_eos": True}):
        first = first or time.monotonic()
    return first - begin


class Prefix(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prompts = [LONG + text for text in TEXTS] + [LONG[:200] + text for text in TEXTS[:6]]
        with Cluster(cls.pack, "--deterministic", "--no-prefix-cache") as cluster:
            cls.anew = [greedy(cluster, p) for p in cls.prompts]
            cls.turns_anew = conversation(cluster, LONG[:100], 4)

    def test_nothing_is_shared_where_it_is_turned_off(self):
        self.assertEqual({cached for _, cached in self.anew}, {0})
        self.assertEqual(self.turns_anew[1], [0, 0, 0, 0])

    def test_one_after_the_other(self):
        with Cluster(self.pack, "--deterministic") as cluster:
            found = [greedy(cluster, p) for p in self.prompts]
            turns = conversation(cluster, LONG[:100], 4)
            status = cluster.request("GET", "/v1/moestro/status")[1]
        self.assertEqual([answer for answer, _ in found], [answer for answer, _ in self.anew])
        self.assertEqual(turns[0], self.turns_anew[0])
        self.assertEqual([cached for _, cached in found[:20]], [0] + [448] * 19)
        self.assertTrue(all(cached >= 192 for _, cached in found[20:]))
        for turn in range(1,
                          4):  # the answer's blocks too, but for the last token, whose keys and values nobody computed
            before = 100 + turn * 20 + sum(len(t) for t in TEXTS[:turn - 1])
            self.assertGreaterEqual(turns[1][turn], (before - 1) // 16 * 16)
        self.assertGreaterEqual(status["tokens"]["prefix_cached"], sum(cached for _, cached in found))
        self.assertGreater(status["kv_blocks"]["prefixes"], 28)
        self.assertEqual(status["kv_blocks"]["used"], 0)

    def together(self, *options):
        with Cluster(self.pack, "--deterministic", *options) as cluster:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                found = list(pool.map(lambda p: greedy(cluster, p), self.prompts))
        self.assertEqual([answer for answer, _ in found], [answer for answer, _ in self.anew])
        return [cached for _, cached in found]

    def test_sixteen_at_once(self):
        self.assertGreater(sum(self.together()), 15 * 448)

    def test_with_hardly_any_room(self):
        """Room for one sequence and a half: blocks are taken from each other all the time."""
        self.together("--kv-tokens", "784", "--step-tokens", "50")

    def test_two_workers(self):
        self.assertGreater(sum(self.together("--workers", "2")), 10 * 448)

    def test_a_dead_workers_blocks_are_forgotten(self):
        with Cluster(self.pack, "--deterministic") as cluster:
            greedy(cluster, self.prompts[0])
            self.assertEqual(greedy(cluster, self.prompts[1]), (self.anew[1][0], 448))
            os.kill(cluster.children("moestro-worker")[0], signal.SIGKILL)
            cluster.wait_until(lambda: cluster.request("GET", "/v1/moestro/status")[1]["workers_lost"] == 1,
                               what="the loss")
            self.assertEqual(greedy(cluster, self.prompts[2]), (self.anew[2][0], 0))
            self.assertEqual(greedy(cluster, self.prompts[3]), (self.anew[3][0], 448))

    def test_salts_keep_apart(self):
        with Cluster(self.pack) as cluster:
            cached = []
            for salt in ("one", "two", "one"):
                usage = cluster.complete(LONG, max_tokens=1, cache_salt=salt)["usage"]
                cached.append(usage["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(cached, [0, 0, 432])

    def test_time_to_the_first_token(self):
        """Prints it; what is asserted is what was found, not how fast."""
        with Cluster(self.pack) as cluster:
            anew, found = [], []
            for i in range(5):
                fresh = [(token + i + 1) % 500 for token in LONG]
                anew.append(first_token_seconds(cluster, fresh + TEXTS[0]))
                found.append(first_token_seconds(cluster, fresh + TEXTS[1]))
                _, cached = greedy(cluster, fresh + TEXTS[2], 1)
                self.assertEqual(cached, 448)
        print(f"\ntime to the first token behind 448 shared tokens: {1e3 * statistics.median(found):.1f} ms; "
              f"computed anew: {1e3 * statistics.median(anew):.1f} ms (medians of 5)")


if __name__ == "__main__":
    main()
