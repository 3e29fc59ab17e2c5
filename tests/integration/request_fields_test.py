"""Fields that scripts for vLLM and OpenAI send, against the demo model: each does what it says."""

import json
import tempfile
import unittest

from cluster import Cluster, main, moestro
from templates import THINKING, pack_with

END = 0  # <|endoftext|>
PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "max_tokens": 24, "return_token_ids": True}


class RequestFields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(dir.cleanup)
        cls.dir = dir.name
        cls.pack = pack_with(THINKING, cls.dir)
        cls.cluster = Cluster(cls.pack, "--deterministic").__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.plain = cls.complete()

    @classmethod
    def complete(cls, prompt=PROMPT, **options):
        return cls.cluster.complete(prompt, **{**GREEDY, **options})["choices"][0]

    def tokens(self, text):
        return self.cluster.request("POST", "/tokenize", {"prompt": text})[1]["tokens"]

    def chat(self, *messages, **options):
        status, answer = self.cluster.request(
            "POST", "/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Tell me a story."}, *messages], "temperature": 0,
                "max_tokens": 16, **options
            })
        self.assertEqual(status, 200, answer)
        return answer

    def test_stop_tokens(self):
        ids = self.plain["token_ids"]
        at = next(i for i in range(3, len(ids)) if ids[i] not in ids[:i])
        cut = self.complete(stop_token_ids=[ids[at]])
        self.assertEqual((cut["token_ids"], cut["finish_reason"], cut["stop_reason"]), (ids[:at + 1], "stop", ids[at]))
        self.assertTrue(self.plain["text"].startswith(cut["text"]))
        kept = self.complete(stop_token_ids=[ids[at]], include_stop_str_in_output=True)["text"]
        self.assertTrue(self.plain["text"].startswith(kept) and len(kept) > len(cut["text"]))
        later = self.complete(stop_token_ids=[ids[at]], min_tokens=at + 3)
        self.assertGreater(len(later["token_ids"]), at + 2)
        self.assertNotIn(ids[at], later["token_ids"][:at + 3])

    def test_stop_strings(self):
        text = self.plain["text"]
        word = text[8:12]
        cut = self.complete(stop=word)
        self.assertEqual((cut["text"], cut["stop_reason"]), (text[:text.index(word)], word))
        kept = self.complete(stop=word, include_stop_str_in_output=True)
        self.assertEqual(kept["text"], text[:text.index(word)] + word)

    def test_rules_of_tokens(self):
        allowed = sorted(set(self.plain["token_ids"]))[:4]
        for temperature in (0, 1):
            choice = self.complete(allowed_token_ids=allowed, temperature=temperature)
            self.assertLessEqual(set(choice["token_ids"]), set(allowed))
            self.assertEqual(len(choice["token_ids"]), 24)
        words = self.plain["text"].split()
        phrase = " ".join(words[1:3])
        self.assertNotIn(phrase, self.complete(bad_words=[phrase])["text"])
        self.assertIn(words[0], self.complete(bad_words=[phrase])["text"], "what comes before it is as it was")
        number = self.complete(
            allowed_token_ids=self.tokens("4567") + [END], response_format={
                "type": "json_schema", "json_schema": {
                    "name": "n", "schema": {"type": "integer", "minimum": 1000, "maximum": 999999}
                }
            })
        self.assertTrue(1000 <= int(number["text"]) and set(number["text"]) <= set("4567"), number)

    def test_min_tokens_against_the_end_token(self):
        """A bias that makes the end token all but certain."""
        soon = self.complete(logit_bias={str(END): 100})
        self.assertEqual((soon["token_ids"], soon["finish_reason"]), ([END], "stop"))
        self.assertIsNone(soon["stop_reason"])
        later = self.complete(logit_bias={str(END): 100}, min_tokens=7)
        self.assertEqual(later["token_ids"], self.plain["token_ids"][:7] + [END])

    def test_prompt_logprobs_and_truncation(self):
        scored = self.cluster.complete(PROMPT, max_tokens=0, echo=True, logprobs=2, prompt_logprobs=3)["choices"][0]
        entries = scored["prompt_logprobs"]
        self.assertIsNone(entries[0])
        for entry, logprob in list(zip(entries, scored["logprobs"]["token_logprobs"]))[1:]:
            best = sorted(entry.values(), key=lambda e: -e["logprob"])
            self.assertIn(len(entry), (3, 4))
            self.assertEqual([e["rank"] for e in best[:3]], [1, 2, 3])
            self.assertTrue(any(abs(e["logprob"] - logprob) < 1e-5 for e in best))
        ids = self.tokens(PROMPT)
        cut = self.cluster.complete(PROMPT, truncate_prompt_tokens=2, **GREEDY)
        self.assertEqual(cut["usage"]["prompt_tokens"], 2)
        self.assertEqual(cut["choices"][0]["token_ids"], self.complete(ids[-2:])["token_ids"])
        fits = self.cluster.complete("word " * 5000, truncate_prompt_tokens=-1, max_tokens=5, ignore_eos=True)
        model = self.cluster.request("GET", "/v1/models")[1]["data"][0]
        self.assertEqual(fits["usage"]["total_tokens"], model["meta"]["n_ctx"])
        self.assertEqual(len(self.chat(prompt_logprobs=0, max_tokens=1)["prompt_logprobs"]),
                         self.chat(max_tokens=1)["usage"]["prompt_tokens"])

    def test_the_best_of_several(self):
        options = {"temperature": 1.2, "seed": 4, "max_tokens": 12, "logprobs": 0, "return_token_ids": True}
        all = self.cluster.complete(PROMPT, n=4, **options)
        best = self.cluster.complete(PROMPT, n=2, best_of=4, **options)

        def mean(choice):
            logprobs = choice["logprobs"]["token_logprobs"]
            return sum(logprobs) / len(logprobs)
        order = sorted(all["choices"], key=mean, reverse=True)
        self.assertEqual([c["token_ids"] for c in best["choices"]], [c["token_ids"] for c in order[:2]])
        self.assertEqual([c["index"] for c in best["choices"]], [0, 1])
        self.assertEqual(best["usage"]["completion_tokens"], all["usage"]["completion_tokens"])

    def test_reasoning(self):
        """The demo model does not reason: the template begins it, and messages that go on end it."""
        message = self.chat()["choices"][0]["message"]
        self.assertEqual(message["content"], "")
        self.assertGreater(len(message["reasoning_content"]), 5)
        self.assertNotIn("reasoning_content", self.chat(include_reasoning=False)["choices"][0]["message"])
        for begun, name, other in (("<think>\nHm. ", "reasoning_content", "content"),
                                   ("<think>\nHm.\n</think>\nSo", "content", "reasoning_content")):
            begin = {"role": "assistant", "content": begun}
            said = self.chat(begin, continue_final_message=True)["choices"][0]["message"]
            self.assertTrue(said[name])
            self.assertFalse(said[other])
            streamed = {"reasoning_content": "", "content": ""}
            for event in self.cluster.stream(
                    "/v1/chat/completions", {
                        "messages": [{"role": "user", "content": "Tell me a story."}, begin], "temperature": 0,
                        "max_tokens": 16, "continue_final_message": True
                    }):
                for key in streamed:
                    streamed[key] += event["choices"][0]["delta"].get(key) or ""
            self.assertEqual((streamed[name], streamed[other]), (said[name], ""))

    def test_an_effort_that_changes_nothing_is_named(self):
        connection = self.cluster.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps({
            "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "reasoning_effort": "low"
        }), {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertEqual((response.status, response.getheader("X-Moestro-Ignored")), (200, "reasoning_effort"))
        connection.close()

    def test_lenient_servers_name_what_they_ignore(self):
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "colour": "red"}
        bodies = {
            "/v1/completions": {"prompt": "a", "max_tokens": 1, "colour": "red"}, "/v1/chat/completions": chat,
            "/v1/responses": {"input": "a", "max_output_tokens": 1, "colour": "red"}, "/v1/messages": chat,
            "/v1/messages/count_tokens": chat, "/v1/embeddings": {"input": "a", "colour": "red"},
            "/completion": {"prompt": "a", "n_predict": 1, "colour": "red"},
            "/tokenize": {"content": "a", "colour": "red"}, "/detokenize": {"tokens": [1], "colour": "red"},
            "/apply-template": chat
        }
        with Cluster(self.pack, "--lenient") as lenient:
            for path, body in bodies.items():
                with self.subTest(path=path):
                    connection = lenient.connect()
                    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    self.assertEqual((response.status, response.getheader("X-Moestro-Ignored")), (200, "colour"))
                    connection.close()
                    self.assertEqual(self.cluster.request("POST", path, body)[0], 400)

    def test_lines_of_a_batch_have_them_too(self):
        lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {"prompt": PROMPT, **body}}
                 for i, body in enumerate([{**GREEDY, "stop_token_ids": [self.plain["token_ids"][0]]},
                                           {"best_of": 2, "max_tokens": 2, "priority": 3}])]
        with open(self.dir + "/in.jsonl", "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        moestro("batch", "run", self.dir + "/in.jsonl", "-o", self.dir + "/out.jsonl", "--url", self.cluster.url)
        with open(self.dir + "/out.jsonl") as f:
            results = {r["custom_id"]: r["response"]["body"] for r in map(json.loads, f)}
        self.assertEqual(results["0"]["choices"][0]["stop_reason"], self.plain["token_ids"][0])
        self.assertEqual(results["1"]["usage"]["completion_tokens"], 4)


if __name__ == "__main__":
    main()
