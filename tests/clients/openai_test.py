"""The official client against the demo model: what its users do, and what evaluation harnesses send."""

import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import unittest

import openai
from cluster import DEMO, Cluster, main, pack

TOOLS_TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}. Call one as "
    "<tool_call>\n{...}\n</tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in m.tool_calls or [] "
    "%}<tool_call>\n"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor "
    "%}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
WEATHER = {
    "type": "function", "function": {
        "name": "weather", "description": "The weather of a town", "strict": True, "parameters": {
            "type": "object", "properties": {
                "town": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 7}
            }, "required": ["town", "days"], "additionalProperties": False
        }
    }
}
PERSON = {
    "type": "object", "properties": {
        "name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}
    }, "required": ["name", "age", "tags"], "additionalProperties": False
}
KEY = "sk-test-of-clients"


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        source = pathlib.Path(cls.dir.name) / "demo"
        shutil.copytree(DEMO, source)
        (source / "chat_template.jinja").write_text(TOOLS_TEMPLATE)
        keys = pathlib.Path(cls.dir.name) / "keys"
        keys.write_text(f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()} tests\n")
        os.chmod(keys, 0o600)
        cls.cluster = Cluster(pack(source, cls.dir.name + "/pack"), "--name", "demo", "--api-keys",
                              str(keys)).__enter__()
        cls.client = openai.OpenAI(base_url=cls.cluster.url + "/v1", api_key=KEY, max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.__exit__()
        cls.dir.cleanup()

    def complete(self, **options):
        return self.client.completions.create(
            **{"model": "demo", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, **options})

    def chat(self, **options):
        return self.client.chat.completions.create(
            **{
                "model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12,
                "temperature": 0, **options
            })

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["demo"])
        self.assertEqual(self.client.models.retrieve("demo").object, "model")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-99")

    def test_keys(self):
        with openai.OpenAI(base_url=self.cluster.url + "/v1", api_key="wrong", max_retries=0) as stranger:
            with self.assertRaises(openai.AuthenticationError):
                stranger.models.list()

    def test_completion(self):
        answer = self.complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.usage.completion_tokens, 8)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(self.complete().choices[0].text, answer.choices[0].text, "greedy")

    def test_seed_n_and_prompts(self):
        first = self.complete(prompt=["Once", "Then"], n=2, seed=7, temperature=1)
        again = self.complete(prompt=["Once", "Then"], n=2, seed=7, temperature=1)
        self.assertEqual([c.index for c in first.choices], [0, 1, 2, 3])
        self.assertEqual([c.text for c in first.choices], [c.text for c in again.choices])
        self.assertNotEqual(first.choices[0].text, first.choices[1].text)

    def test_a_harness_scores_a_prompt(self):
        """What lm-evaluation-harness's local-completions sends: token ids, echo, logprobs."""
        ids = self.cluster_tokens("Once upon a time there was a dog")
        answer = self.complete(prompt=[ids, ids[:4]], echo=True, max_tokens=1, logprobs=1, seed=1234)
        for choice, prompt in zip(answer.choices, (ids, ids[:4])):
            scored = choice.logprobs
            self.assertEqual(len(scored.token_logprobs), len(prompt) + 1)
            self.assertIsNone(scored.token_logprobs[0])
            self.assertTrue(all(p <= 0 for p in scored.token_logprobs[1:]))
            greedy = [max(t, key=t.get) == token for t, token in zip(scored.top_logprobs[1:], scored.tokens[1:])]
            self.assertIn(True, greedy)
        self.assertEqual(answer.choices[0].logprobs.token_logprobs[1:4], answer.choices[1].logprobs.token_logprobs[1:4])

    def cluster_tokens(self, text):
        status, body = self.cluster.request("POST", "/tokenize", {"content": text}, {"Authorization": "Bearer " + KEY})
        self.assertEqual(status, 200)
        return body["tokens"]

    def test_stop(self):
        text = self.complete(max_tokens=40).choices[0].text
        stop = text[5:9]
        answer = self.complete(max_tokens=40, stop=[stop])
        self.assertEqual(answer.choices[0].text, text[:text.index(stop)], "across the borders of tokens")
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_logit_bias_and_penalties(self):
        token = self.cluster_tokens(" dog")[0]
        answer = self.complete(logit_bias={str(token): 100}, extra_body={"return_token_ids": True})
        self.assertEqual(answer.choices[0].token_ids, [token] * 8)
        ids = self.complete(logit_bias={str(token): 100}, max_tokens=4, frequency_penalty=2, presence_penalty=2,
                            extra_body={"return_token_ids": True})
        self.assertEqual(ids.choices[0].token_ids[0], token)
        plain = self.complete(max_tokens=60, extra_body={"return_token_ids": True}).choices[0].token_ids
        varied = self.complete(max_tokens=60, extra_body={"return_token_ids": True, "repetition_penalty": 1.5},
                               frequency_penalty=2).choices[0].token_ids
        self.assertGreater(len(set(varied)), len(set(plain)), "fewer repetitions")

    def test_streams(self):
        whole = self.chat().choices[0]
        text, reason, usage = "", None, None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
        self.assertEqual((text, reason), (whole.message.content, whole.finish_reason))
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertEqual("".join(c.choices[0].text for c in self.complete(stream=True)),
                         self.complete().choices[0].text)

    def test_chat_logprobs_and_max_completion_tokens(self):
        answer = self.chat(logprobs=True, top_logprobs=3, max_tokens=openai.NOT_GIVEN, max_completion_tokens=5)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        self.assertTrue(all(len(t.top_logprobs) == 3 and t.logprob == t.top_logprobs[0].logprob for t in content))

    def test_json(self):
        for temperature in (0, 1.5):
            answer = self.chat(
                max_tokens=400, temperature=temperature, seed=3, response_format={
                    "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}
                })
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            person = json.loads(answer.choices[0].message.content)
            self.assertEqual(list(person), ["name", "age", "tags"])
            self.assertLessEqual(len(person["name"]), 10)
            self.assertTrue(0 <= person["age"] <= 120 and len(person["tags"]) <= 2
                            and set(person["tags"]) <= {"a", "b"})
        answer = self.chat(max_tokens=30, response_format={"type": "json_object"})
        self.assertEqual(answer.choices[0].message.content[0], "{")

    def test_tools(self):
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            answer = self.chat(max_tokens=300, temperature=1, seed=5, tools=[WEATHER], tool_choice=choice,
                               parallel_tool_calls=False).choices[0]
            self.assertEqual(answer.finish_reason, "tool_calls")
            (call,) = answer.message.tool_calls
            arguments = json.loads(call.function.arguments)
            self.assertEqual(call.function.name, "weather")
            self.assertTrue(1 <= arguments["days"] <= 7 and len(arguments["town"]) <= 12)
        name, arguments = "", ""
        for chunk in self.chat(max_tokens=300, temperature=1, seed=5, tools=[WEATHER], tool_choice="required",
                               parallel_tool_calls=False, stream=True):
            for delta in chunk.choices[0].delta.tool_calls or []:
                name += delta.function.name or ""
                arguments += delta.function.arguments or ""
        self.assertEqual((name, json.loads(arguments)), ("weather", json.loads(call.function.arguments)))
        answer = self.chat(tools=[WEATHER], tool_choice="none").choices[0]
        self.assertIsNone(answer.message.tool_calls)
        followed = self.chat(
            tools=[WEATHER], messages=[{"role": "user", "content": "Weather?"},
                                       {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
                                       {"role": "tool", "tool_call_id": call.id, "content": "Sun."}])
        self.assertGreater(followed.usage.completion_tokens, 0)

    def test_embeddings(self):
        plain = self.client.embeddings.create(model="demo", input=["Once", "upon"], encoding_format="float")
        coded = self.client.embeddings.create(model="demo", input=["Once", "upon"])  # the client asks for base64
        self.assertEqual([len(e.embedding) for e in plain.data], [128, 128])
        for a, b in zip(plain.data, coded.data):
            self.assertEqual(a.index, b.index)
            for x, y in zip(a.embedding, b.embedding):
                self.assertAlmostEqual(x, y, places=6)
        self.assertEqual(plain.usage.total_tokens, plain.usage.prompt_tokens)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.embeddings.create(model="demo", input="Once", dimensions=64)
        self.assertEqual(refused.exception.param, "dimensions")

    def test_errors_are_the_clients_own(self):
        for options, word in [
            ({"max_tokens": -1}, "max_tokens"), ({"extra_body": {"no_such_field": 1}}, "no_such_field"),
            ({"best_of": 1, "n": 2}, "best_of"), ({"suffix": "x"}, "suffix"), ({"prompt": "a " * 5000}, "context"),
            ({
                "extra_body": {
                    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}
                }
            }, "'not'")
        ]:
            with self.subTest(word=word), self.assertRaises(openai.BadRequestError) as raised:
                self.complete(**options)
            self.assertIn(word, str(raised.exception))
        with self.assertRaises(openai.NotFoundError):
            self.complete(model="gpt-99")

    def test_a_client_that_leaves_frees_its_place(self):
        with self.complete(stream=True, max_tokens=900, extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))

        def running():
            _, status = self.cluster.request("GET", "/v1/moestro/status", headers={"Authorization": "Bearer " + KEY})
            return status["sequences"]["running"]
        self.cluster.wait_until(lambda: running() == 0, 10, "the end of what nobody reads")

    def test_files(self):
        data = b'{"custom_id":"a"}\n'
        file = self.client.files.create(file=("in.jsonl", data), purpose="batch")
        self.assertEqual((file.object, file.bytes, file.filename, file.purpose),
                         ("file", len(data), "in.jsonl", "batch"))
        self.assertEqual(self.client.files.retrieve(file.id).id, file.id)
        self.assertIn(file.id, [f.id for f in self.client.files.list(purpose="batch")])
        self.assertEqual(self.client.files.content(file.id).read(), data)
        self.assertTrue(self.client.files.delete(file.id).deleted)
        with self.assertRaises(openai.NotFoundError):
            self.client.files.content(file.id)
        with self.assertRaises(openai.BadRequestError):
            self.client.files.create(file=("a", b"x"), purpose="fine-tune")

    def batch(self, lines, endpoint):
        """A batch of these lines, once it is over."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        file = self.client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
        batch = self.client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h",
                                           metadata={"made": "here"})
        self.assertIn(batch.status, ("validating", "in_progress"))

        def over():
            nonlocal batch
            batch = self.client.batches.retrieve(batch.id)
            return batch.status in ("completed", "failed", "expired", "cancelled")
        self.cluster.wait_until(over, 60, "the end of the batch")
        return batch

    def lines_of(self, file_id):
        return {r["custom_id"]: r for r in map(json.loads, self.client.files.content(file_id).text.splitlines())}

    def test_batches(self):
        for endpoint, body in (("/v1/completions", {"prompt": "Once upon a time"}),
                               ("/v1/chat/completions", {"messages": [{"role": "user",
                                                                       "content": "Tell me a story."}]})):
            with self.subTest(endpoint=endpoint):
                body |= {"model": "demo", "max_tokens": 6, "temperature": 0}
                lines = [{"custom_id": f"id-{i}", "method": "POST", "url": endpoint, "body": body} for i in range(5)]
                lines.append(
                    {"custom_id": "bad", "method": "POST", "url": endpoint, "body": {**body, "temperature": "hot"}})
                batch = self.batch(lines, endpoint)
                self.assertEqual(batch.status, "completed", batch)
                self.assertEqual(
                    (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed),
                    (6, 5, 1))
                self.assertEqual(batch.metadata, {"made": "here"})
                good, bad = self.lines_of(batch.output_file_id), self.lines_of(batch.error_file_id)
                self.assertEqual((set(good), set(bad)), ({f"id-{i}" for i in range(5)}, {"bad"}))
                direct = self.complete(max_tokens=6) if endpoint == "/v1/completions" else self.chat(max_tokens=6)
                for line in good.values():
                    self.assertEqual(line["response"]["status_code"], 200)
                    choice = line["response"]["body"]["choices"][0]
                    self.assertEqual(choice.get("text",
                                                choice.get("message", {}).get("content")),
                                     getattr(direct.choices[0], "text", None) or direct.choices[0].message.content)
                self.assertEqual(bad["bad"]["response"]["status_code"], 400)
                self.assertIn(batch.id, [b.id for b in self.client.batches.list(limit=5)])

    def test_a_batch_is_cancelled(self):
        line = {
            "method": "POST", "url": "/v1/completions",
            "body": {"prompt": "Once", "max_tokens": 200, "ignore_eos": True}
        }
        text = "".join(json.dumps({"custom_id": str(i), **line}) + "\n" for i in range(2000))
        file = self.client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
        batch = self.client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
        self.assertIn(self.client.batches.cancel(batch.id).status, ("cancelling", "cancelled"))
        self.cluster.wait_until(lambda: self.client.batches.retrieve(batch.id).status == "cancelled", 60,
                                "the end of the batch")
        self.assertLess(self.client.batches.retrieve(batch.id).request_counts.completed, 2000)
        self.assertEqual(self.complete().usage.completion_tokens, 8, "and others are served")


if __name__ == "__main__":
    main()
