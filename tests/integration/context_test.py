"""What happens where a sequence outgrows the KV cache: a refusal with the figures, or an answer that says `length`."""

import json

from cluster import DEMO, Cluster, DemoTest, main

IDS = json.loads((DEMO / "reference.json").read_text())["prompts"][0]["ids"]
ROOM = 128


class Context(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster(cls.pack, "--kv-tokens", str(ROOM)).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def refusal(self, path="/v1/completions", **body):
        """The same with and without a stream: a refusal comes before a stream begins."""
        errors = []
        for stream in (False, True):
            status, answer = self.cluster.request("POST", path, {**body, "stream": stream})
            self.assertEqual(status, 400)
            errors.append(answer["error"])
        self.assertEqual(errors[0], errors[1])
        self.assertEqual(errors[0]["type"], "exceed_context_size_error")
        return errors[0]

    def test_a_prompt_larger_than_the_cache(self):
        error = self.refusal(prompt=(IDS * 20)[:ROOM + 2], max_tokens=1)
        self.assertEqual((error["n_prompt_tokens"], error["n_ctx"], error["param"]), (ROOM + 2, ROOM, "prompt"))
        error = self.refusal("/v1/chat/completions", messages=[{"role": "user", "content": "word and word " * 200}])
        self.assertGreater(error["n_prompt_tokens"], ROOM)
        self.assertEqual((error["n_ctx"], error["param"]), (ROOM, "messages"))

    def test_max_tokens_that_cannot_fit(self):
        error = self.refusal(prompt=IDS, max_tokens=ROOM - len(IDS) + 1)
        self.assertEqual((error["n_prompt_tokens"], error["n_ctx"], error["param"]), (len(IDS), ROOM, "max_tokens"))
        self.assertIn("--kv-tokens", error["message"])
        whole = self.cluster.complete(IDS, max_tokens=ROOM - len(IDS), ignore_eos=True)
        self.assertEqual(whole["usage"]["total_tokens"], ROOM)
        self.assertEqual(whole["choices"][0]["finish_reason"], "length")

    def test_an_answer_without_a_limit_fills_the_cache_and_says_length(self):
        chat = {"messages": [{"role": "user", "content": "Tell me of it."}], "ignore_eos": True, "temperature": 0}
        status, whole = self.cluster.request("POST", "/v1/chat/completions", chat)
        self.assertEqual(status, 200, whole)
        self.assertEqual(whole["choices"][0]["finish_reason"], "length")
        self.assertEqual(whole["usage"]["total_tokens"], ROOM)
        events = list(self.cluster.stream("/v1/chat/completions", {**chat, "stream_options": {"include_usage": True}}))
        self.assertEqual(events[-1]["usage"]["total_tokens"], ROOM)
        reasons = [e["choices"][0]["finish_reason"] for e in events if e["choices"]]
        self.assertEqual([r for r in reasons if r], ["length"])
        self.assertEqual(reasons[-1], "length", "the last chunk of the choice says why it ended")

    def test_eight_that_fill_it_together_each_get_all_of_it(self):
        status, whole = self.cluster.request(
            "POST", "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Go on."}], "ignore_eos": True, "n": 8, "seed": 1})
        self.assertEqual(status, 200, whole)
        self.assertEqual([c["finish_reason"] for c in whole["choices"]], ["length"] * 8)
        self.assertEqual(whole["usage"]["completion_tokens"], 8 * (ROOM - whole["usage"]["prompt_tokens"]))


if __name__ == "__main__":
    main()
