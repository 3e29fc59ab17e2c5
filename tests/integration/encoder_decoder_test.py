"""Encoder-decoder models behind HTTP: `prompt` is the source, and the answer its target. Greedy answers are those of
transformers; alone, in a batch, preempted and after a worker's death they are the same."""

import json
import os
import pathlib
import shutil
import signal
import tempfile
import threading
import unittest

from cluster import SOURCE, Cluster, main, moestro, pack

FIXTURES = SOURCE / "tests" / "fixtures" / "models"
TOKENIZERS = SOURCE / "tests" / "fixtures" / "tokenizers"
VOCAB = 128
FRENCH = VOCAB - 1
PRECISION = ("--experts", "f32", "--dense", "f32")
DEVICE = ("--device", "emulated:vram=24KiB,link=100MB/s")  # for two to four of the fixtures' experts
EXACT = ("--workers", "1", "--deterministic", "--kv-dtype", "f32")


def source_of(target):
    """As scripts/python/encoder_decoder_fixtures.py has it."""
    first = target[0]
    return [3 + (31 * first + 17 * i * i + 5 * i) % (VOCAB - 3) for i in range(1 + 7 * first % 40)]


def references(fixture):
    return json.loads((FIXTURES / fixture / "reference.json").read_text())["f32"]["prompts"]


def tokenizer(specials):
    """T5's, cut down to the fixtures' vocabulary. `specials`: its first tokens."""
    whole = json.loads((TOKENIZERS / "t5.json").read_text())
    words = ["\u2581"] + [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words += ["\u2581" + w for w in words[1:]] + [a + b for a in "aeiou" for b in "bcdfghjklmnpqr"]
    vocab = [[token, 0.0] for token in specials] + [[word, -4.0 - i / 100] for i, word in enumerate(words)]
    whole["model"]["vocab"] = vocab[:VOCAB - 2]
    whole["model"]["unk_id"] = specials.index("<unk>")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = list(enumerate(specials)) + [(VOCAB - 2, "eng_Latn"), (FRENCH, "fra_Latn")]
    whole["added_tokens"] = [{"id": i, "content": token, **plain} for i, token in added]
    end = specials.index("</s>")
    whole["post_processor"]["special_tokens"] = {"</s>": {"id": "</s>", "ids": [end], "tokens": ["</s>"]}}
    return json.dumps(whole)


def checkpoint(fixture, target, **config):
    """A copy of a fixture with a tokenizer, and with other settings."""
    shutil.copytree(FIXTURES / fixture, target)
    whole = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**whole, **config}))
    nllb = fixture.startswith("nllb")
    specials = ["<s>", "<pad>", "</s>", "<unk>"] if nllb else ["<pad>", "</s>", "<unk>"]
    (target / "tokenizer.json").write_text(tokenizer(specials))
    (target / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>"}))
    return target


class WithModels(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)

    def packed(self, fixture, **config):
        name = f"{fixture}-{len(list(self.dir.iterdir()))}"
        return pack(checkpoint(fixture, self.dir / f"{name}-source", **config), self.dir / name, *PRECISION)


def greedy(cluster, source, tokens, **more):
    asked = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True, "return_token_ids": True, **more}
    return cluster.complete(source, **asked)["choices"][0]["token_ids"]


class References(WithModels):

    def test_greedy_answers_are_those_of_transformers(self):
        for fixture, prompt in (("switch_transformers_capacity", 1), ("switch_transformers_untied", 2),
                                ("nllb_moe_bias", 3), ("nllb_moe_scaled", 1)):
            reference = references(fixture)[prompt]
            ids = reference["ids"]
            with self.subTest(fixture):
                with Cluster(self.packed(fixture, decoder_start_token_id=ids[0]), *EXACT) as cluster:
                    for begin in (ids[1:], ids):  # the start token is not doubled
                        said = greedy(cluster, source_of(ids), 32, decoder_prompt=begin)
                        self.assertEqual(said, reference["greedy"])


class Equality(WithModels):
    LENGTHS = (3, 57, 1, 30, 16, 44, 17, 9)
    TOKENS = 40
    SAMPLED = {"temperature": 1, "seed": 11}  # one fixture says the same of everything, if it is asked greedily

    def sources(self):
        return [[3 + (7 * n + 11 * i) % 120 for i in range(n)] for n in self.LENGTHS]

    def together(self, cluster, when=None):
        """All of them, sources coming while others decode."""
        said, seen = {}, threading.Semaphore(0)

        def one(index, source):
            ids = []
            for event in cluster.stream("/v1/completions", {
                    "prompt": source, "max_tokens": self.TOKENS, "ignore_eos": True, "return_token_ids": True,
                    **self.SAMPLED}):
                for choice in event["choices"]:
                    ids += choice.get("token_ids") or []
                seen.release()
            said[index] = ids

        threads = []
        for index, source in enumerate(self.sources()):
            threads.append(threading.Thread(target=one, args=(index, source)))
            threads[-1].start()
            if index % 2 == 1:
                seen.acquire(timeout=30)
        if when:
            for _ in range(20):
                seen.acquire(timeout=30)
            when()
        for thread in threads:
            thread.join()
        return [said.get(i) for i in range(len(threads))]

    def test_alone_together_preempted_and_after_a_death(self):
        for fixture in ("switch_transformers_capacity", "nllb_moe_scaled"):
            model = self.packed(fixture)
            with self.subTest(fixture), Cluster(model, *EXACT) as cluster:
                alone = [greedy(cluster, source, self.TOKENS, **self.SAMPLED) for source in self.sources()]
                self.assertTrue(all(len(ids) == self.TOKENS for ids in alone))
                self.assertEqual(len({tuple(ids) for ids in alone}), len(alone))
                self.assertEqual(self.together(cluster), alone)
                self.assertEqual(self.together(cluster, lambda: os.kill(
                    cluster.children("moestro-worker")[0], signal.SIGKILL)), alone)
            with self.subTest(f"{fixture}, preempted"), Cluster(model, *EXACT, "--kv-tokens", "160", "--step-tokens",
                                                                "64") as cluster:
                def preempted():
                    self.assertEqual(self.together(cluster), alone)
                    metrics = cluster.request("GET", "/metrics")[1].splitlines()
                    return any(line.startswith("moestro_preemptions_total") and not line.endswith(" 0")
                               for line in metrics)

                # On a busy machine some may have ended before others come.
                cluster.wait_until(preempted, 60, what="a sequence that makes room for others")
            with self.subTest(f"{fixture}, on a device"), Cluster(model, *EXACT, *DEVICE) as cluster:
                self.assertEqual(self.together(cluster), alone)
                layers = cluster.request("GET", "/v1/moestro/status")[1]["tiers"]["device"]["layers"]
                self.assertTrue(all(misses > 0 for misses in layers["misses"]), "of both stacks")
                self.assertEqual(self.together(cluster, lambda: os.kill(
                    cluster.children("moestro-worker")[0], signal.SIGKILL)), alone)


class Requests(WithModels):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.packed(cls, "nllb_moe_bias")
        cls.cluster = Cluster(cls.model, *EXACT, "--step-tokens", "48")
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def refused(self, path, body, *words):
        status, answer = self.cluster.request("POST", path, body)
        self.assertEqual(status, 400, answer)
        for word in words:
            self.assertIn(word, json.dumps(answer))

    def test_a_text_and_how_its_target_begins(self):
        cluster = self.cluster
        plain = cluster.complete("ba de ca", max_tokens=8, temperature=0, ignore_eos=True, return_token_ids=True)
        tokens = cluster.request("POST", "/tokenize", {"prompt": "ba de ca"})[1]
        self.assertEqual(tokens["tokens"][-1], 2, "the tokenizer ends a source")
        self.assertEqual(tokens["max_model_len"], 48)
        spelled = cluster.request("POST", "/tokenize", {"content": "eng_Latn ba de ca</s>"})[1]
        self.assertEqual(spelled["tokens"], [VOCAB - 2] + tokens["tokens"], "as docs/api.md has it")
        self.assertEqual(plain["usage"]["prompt_tokens"], tokens["count"] + 1, "and the start token")
        french = cluster.complete("ba de ca", max_tokens=8, temperature=0, ignore_eos=True, return_token_ids=True,
                                  decoder_prompt="fra_Latn")
        self.assertEqual(french["usage"]["prompt_tokens"], tokens["count"] + 2)
        for same in ([FRENCH], [2, FRENCH]):
            again = greedy(cluster, "ba de ca", 8, decoder_prompt=same)
            self.assertEqual(again, french["choices"][0]["token_ids"])
        self.assertNotEqual(plain["choices"][0]["token_ids"], again)
        longer = greedy(cluster, "ba de ca", 5, decoder_prompt=[FRENCH] + again[:3])
        self.assertEqual(longer, again[3:], "an answer is gone on with")

    def test_the_forced_token_is_said_first(self):
        with Cluster(self.packed("nllb_moe_bias", forced_bos_token_id=FRENCH), *EXACT) as forced:
            self.assertEqual(greedy(forced, "ba de ca", 8), greedy(self.cluster, "ba de ca", 8,
                                                                   decoder_prompt=[FRENCH]))
            self.assertEqual(greedy(forced, "ba de ca", 8, decoder_prompt=""), greedy(self.cluster, "ba de ca", 8))

    def test_choices_streams_stops_and_scores(self):
        cluster = self.cluster
        several = cluster.complete(["ba de", "ca"], max_tokens=6, n=3, seed=7, logprobs=2, ignore_eos=True)
        self.assertEqual(len(several["choices"]), 6)
        self.assertEqual(several["choices"], cluster.complete(["ba de", "ca"], max_tokens=6, n=3, seed=7, logprobs=2,
                                                              ignore_eos=True)["choices"])
        best = cluster.complete("ba de", max_tokens=6, n=1, best_of=3, seed=7, ignore_eos=True)
        self.assertEqual(len(best["choices"]), 1)
        body = {"prompt": "ba de", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        whole = cluster.complete(**body)["choices"][0]["text"]
        streamed = "".join(c["text"] for e in cluster.stream("/v1/completions", body) for c in e["choices"])
        self.assertEqual(streamed, whole)
        self.assertFalse(whole.startswith(" "), "a target is a text of its own")
        for seed in range(3):  # the first word's space is not shown, and a form does not count it
            words = cluster.complete("ba de", max_tokens=40, seed=seed, return_token_ids=True,
                                     guided_regex="( [a-d]{1,3}){2,4}z")["choices"][0]
            self.assertEqual(words["finish_reason"], "stop", words)
            self.assertRegex(words["text"], "^( [a-d]{1,3}){2,4}z$")
        space = cluster.request("POST", "/tokenize", {"content": "a", "add_special": False})[1]["tokens"][0]
        word = cluster.complete("ba de", max_tokens=5, temperature=0, guided_regex="a", return_token_ids=True,
                                logit_bias={str(space): 100})["choices"][0]
        self.assertEqual((word["text"], word["token_ids"][0]), ("a", space), "a word begins as the model spells it")
        stop = whole[len(whole) // 2:][:2]
        cut = cluster.complete(**body, stop=[stop])["choices"][0]
        self.assertEqual((cut["text"], cut["stop_reason"]), (whole[:whole.index(stop)], stop))

    def test_what_makes_no_sense_is_refused_by_name(self):
        complete = "/v1/completions"
        for field, value in (("echo", True), ("prompt_logprobs", 1), ("suffix", "x"), ("truncate_prompt_tokens", 4),
                             ("decoder_prompt", 3), ("decoder_prompt", [VOCAB])):
            self.refused(complete, {"prompt": "ba", field: value}, field)
        self.refused(complete, {"prompt": [5] * 49}, "49 tokens", "at most 48", "--step-tokens")
        self.refused(complete, {"prompt": "ba", "decoder_prompt": [5] * 8200}, "context")
        chat = [{"role": "user", "content": "ba"}]
        for path, body in (("/v1/chat/completions", {"messages": chat}), ("/v1/responses", {"input": "ba"}),
                           ("/v1/messages", {"messages": chat, "max_tokens": 4}), ("/v1/embeddings", {"input": "ba"}),
                           ("/v1/messages/count_tokens", {"messages": chat}), ("/tokenize", {"messages": chat}),
                           ("/apply-template", {"messages": chat})):
            self.refused(path, body, "encoder-decoder model", "/v1/completions")
        self.refused("/completion", {"prompt": ["ba", 5], "n_predict": 4}, "prompt")

    def test_settings_that_it_lacks_are_refused_by_name(self):
        for words, options in (("--schedule expert-pipeline with an encoder-decoder model", (
                                   *DEVICE, "--schedule", "expert-pipeline")),
                               ("--predict recent+gate with an encoder-decoder model", (
                                   *DEVICE, "--predict", "recent+gate")),
                               ("--trace with an encoder-decoder model", ("--trace", self.dir / "trace")),
                               ("--predict gate with an encoder-decoder model", ("--predict", "gate")),
                               ("--kv-window with an encoder-decoder model", ("--kv-window", "64")),
                               ("--capacity-factor with an encoder-decoder model", ("--capacity-factor", "2"))):
            with self.subTest(words), self.assertRaises(AssertionError) as refused:
                with Cluster(self.model, "--workers", "1", *options):
                    pass
            self.assertIn(words, str(refused.exception))

    def test_models_and_llama_servers_completion(self):
        meta = self.cluster.request("GET", "/v1/models")[1]["data"][0]["meta"]
        self.assertEqual((meta["encoder_decoder"], meta["n_source_max"]), (True, 48))
        body = {"prompt": "ba de ca", "n_predict": 8, "temperature": 0, "ignore_eos": True, "return_tokens": True,
                "top_k": 0, "top_p": 1, "min_p": 0, "decoder_prompt": "fra_Latn"}
        status, answer = self.cluster.request("POST", "/completion", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["tokens"], greedy(self.cluster, "ba de ca", 8, decoder_prompt=[FRENCH]))

    def test_bench_serve_sends_sources(self):
        report = json.loads(moestro("bench", "serve", "--url", self.cluster.url, "--json", "--count", 20, "--prompt",
                                    "30-60", "--output", "1-20").stdout)
        (run,) = report["runs"]
        self.assertEqual((run["completed"], run["failed"], run["refused"], run["other_length"]), (20, 0, 0, 0))
        self.assertGreater(run["cut_to_context"], 0, "longer than a step")

    def test_batches(self):
        lines, expected = [], {}
        for i in range(12):
            source = [3 + (5 * i + j) % 100 for j in range(1 + 4 * i)]
            body = {"prompt": source, "max_tokens": 6, "temperature": 0, "ignore_eos": True, "decoder_prompt": [FRENCH]}
            lines.append({"custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions", "body": body})
            expected[f"line-{i}"] = self.cluster.complete(**body)["choices"][0]["text"]
        lines.append({**lines[0], "custom_id": "long", "body": {"prompt": [5] * 49}})
        given, results, errors = (self.dir / name for name in ("in.jsonl", "out.jsonl", "errors.jsonl"))
        given.write_text("".join(json.dumps(line) + "\n" for line in lines))
        url = ("--url", self.cluster.url)
        moestro("batch", "run", given, "-o", results, *url)
        self.assertEqual(self.said(results), expected)
        ran = moestro("batch", "submit", given, *url, "--wait", "--json", check=False)
        batch = json.loads(ran.stdout)
        self.assertEqual(batch["request_counts"], {"total": 13, "completed": 12, "failed": 1}, ran.stderr)
        results.unlink()
        moestro("batch", "results", batch["id"], "-o", results, "--errors", errors, *url)
        self.assertEqual(self.said(results), expected)
        self.assertIn("at most 48", errors.read_text())

    def said(self, results):
        said = {}
        for line in results.read_text().splitlines():
            result = json.loads(line)
            body = (result["response"] or {}).get("body", {})
            if "choices" in body:
                said[result["custom_id"]] = body["choices"][0]["text"]
        return said


if __name__ == "__main__":
    main()
