"""The APIs of Anthropic, of OpenAI's responses and of llama-server, over plain HTTP against the demo model: they say
what the chat or completion says that they become. With the official clients where they are installed."""

import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import tempfile
import unittest

from cluster import Cluster, main
from templates import SCHEMA, TOOLS, pack_with

KEY, OTHER = "sk-one", "sk-other"


class Dialects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        keys = pathlib.Path(cls.dir.name) / "keys"
        keys.write_text("".join(f"sha256:{hashlib.sha256(key.encode()).hexdigest()} {name}\n"
                                for key, name in ((KEY, "one"), (OTHER, "other"))))
        os.chmod(keys, 0o600)
        cls.cluster = Cluster(pack_with(TOOLS, cls.dir.name), "--name", "demo", "--api-keys", str(keys))
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def ask(self, path, body=None, method="POST", key=KEY, status=200):
        got, answer = self.cluster.request(method, path, body, {"Authorization": f"Bearer {key}"})
        self.assertEqual(got, status, answer)
        return answer

    def events(self, path, body):
        """(name, data) of each event; [DONE] is told as it is."""
        with contextlib.closing(self.cluster.connect()) as connection:
            connection.request("POST", path, json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json", "x-api-key": KEY})
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            text = response.read().decode()
        events = []
        for block in text.split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            if lines:
                fields = dict(line.split(": ", 1) for line in lines)
                data = fields["data"]
                events.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
        return events

    def chat(self, **more):
        """What the chat says, and why it ends."""
        messages = [{"role": "user", "content": "Once"}]
        body = {"messages": messages, "max_tokens": 4, "temperature": 0, **more}
        choice = self.ask("/v1/chat/completions", body)["choices"][0]
        return choice["message"]["content"], choice["finish_reason"]

    def message(self, **more):
        return {"max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": "Once"}], **more}

    def test_messages(self):
        said, why = self.chat()
        self.assertEqual(why, "length")
        answer = self.ask("/v1/messages", self.message())
        self.assertEqual(answer["content"], [{"type": "text", "text": said}])
        self.assertEqual(answer["stop_reason"], "max_tokens")
        counted = self.ask("/v1/messages/count_tokens", {"messages": self.message()["messages"]})["input_tokens"]
        usage = answer["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], counted)
        events = self.events("/v1/messages", self.message())
        deltas = [data["delta"]["text"] for name, data in events if name == "content_block_delta"]
        self.assertEqual("".join(deltas), said)
        self.assertEqual([events[0][0], events[-1][0]], ["message_start", "message_stop"])

    def test_messages_with_tools(self):
        tools = [{"name": "weather", "description": "of a town", "input_schema": SCHEMA}]
        choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
        answer = self.ask("/v1/messages", self.message(max_tokens=200, tools=tools, tool_choice=choice))
        self.assertEqual(answer["stop_reason"], "tool_use")
        call = answer["content"][-1]
        self.assertEqual((call["type"], call["name"]), ("tool_use", "weather"))
        self.assertIn(call["input"]["days"], range(1, 8))
        events = self.events("/v1/messages", self.message(max_tokens=200, tools=tools, tool_choice=choice))
        parts = [data["delta"].get("partial_json", "") for name, data in events if name == "content_block_delta"]
        self.assertEqual(json.loads("".join(parts)), call["input"])
        turns = [*self.message()["messages"], {"role": "assistant", "content": answer["content"]}, {
            "role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}]
        }]
        self.assertEqual(self.ask("/v1/messages", self.message(messages=turns, tools=tools))["type"], "message")

    def test_keys_and_errors(self):
        status, answer = self.cluster.request("POST", "/v1/messages", self.message(), {"x-api-key": "wrong"})
        self.assertEqual((status, answer["type"], answer["error"]["type"]), (401, "error", "authentication_error"))
        self.assertEqual(self.cluster.request("POST", "/v1/messages", self.message(), {"x-api-key": KEY})[0], 200)
        answer = self.ask("/v1/messages", self.message(no_such_field=1), status=400)
        self.assertEqual(answer["error"]["type"], "invalid_request_error")
        self.assertIn("no_such_field", answer["error"]["message"])
        answer = self.ask("/v1/responses", {"input": "a", "max_output_tokens": 10**9}, status=400)
        self.assertEqual(answer["error"]["param"], "max_output_tokens")
        answer = self.ask("/completion", {"prompt": "a", "n_predict": 10**9}, status=400)
        self.assertIn("n_predict", answer["error"]["message"])

    def test_completion(self):
        said = self.ask("/v1/completions", {"prompt": "Once", "max_tokens": 12, "temperature": 0})["choices"][0]["text"]
        body = {"prompt": "Once", "n_predict": 12, "temperature": 0}
        answer = self.ask("/completion", body)
        self.assertEqual((answer["content"], answer["stop_type"]), (said, "limit"))
        self.assertEqual((answer["prompt"], answer["tokens_predicted"]), ("Once", 12))
        pieces = [data for _, data in self.events("/completion", body)]
        self.assertEqual("".join(p["content"] for p in pieces), said)
        self.assertEqual([p["stop"] for p in pieces], [False] * (len(pieces) - 1) + [True])
        self.assertEqual(sum(len(p["tokens"]) for p in pieces), 12)
        self.assertGreater(pieces[-1]["timings"]["prompt_ms"], 0)
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
        answer = self.ask("/completion", {"prompt": "Once", "n_predict": 100, "json_schema": schema})
        self.assertIn(json.loads(answer["content"])["a"], (True, False))

    def test_completion_of_a_mixed_prompt(self):
        ids = self.ask("/tokenize", {"prompt": "Once upon"})["tokens"]
        whole = self.ask("/completion", {"prompt": ids, "n_predict": 8, "temperature": 0})
        mixed = self.ask("/completion", {"prompt": ["Once", *self.tokens(" upon")], "n_predict": 8, "temperature": 0})
        self.assertEqual(whole["prompt"], mixed["prompt"])

    def tokens(self, text):
        return self.ask("/tokenize", {"content": text})["tokens"]

    def test_responses(self):
        said, _ = self.chat()
        body = {"input": "Once", "max_output_tokens": 4, "temperature": 0}
        first = self.ask("/v1/responses", body)
        self.assertEqual(first["output"][0]["content"][0]["text"], said)
        self.assertEqual(first["incomplete_details"], {"reason": "max_output_tokens"})
        self.assertEqual(self.ask("/v1/responses/" + first["id"], method="GET"), first)
        self.ask("/v1/responses/" + first["id"], method="GET", key=OTHER, status=404)
        again = self.chat(messages=[{"role": "user", "content": "Once"}, {"role": "assistant", "content": said},
                                    {"role": "user", "content": "and"}])[0]
        events = self.events("/v1/responses", {**body, "input": "and", "previous_response_id": first["id"]})
        self.assertEqual([data["sequence_number"] for _, data in events], list(range(len(events))))
        self.assertEqual("".join(d["delta"] for name, d in events if name == "response.output_text.delta"), again)
        last = events[-1][1]["response"]
        self.assertEqual(last["output"][0]["content"][0]["text"], again)
        items = self.ask(f"/v1/responses/{last['id']}/input_items?order=asc", method="GET")["data"]
        self.assertEqual([i["content"][0]["text"] for i in items], ["Once", said, "and"])
        self.assertTrue(self.ask("/v1/responses/" + first["id"], method="DELETE")["deleted"])
        self.ask("/v1/responses", {**body, "previous_response_id": first["id"]}, status=404)

    def test_responses_with_tools(self):
        tools = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
        answer = self.ask("/v1/responses", {"input": "Once", "tools": tools, "tool_choice": "required",
                                            "temperature": 0, "max_output_tokens": 200, "parallel_tool_calls": False})
        self.assertEqual(answer["status"], "completed")
        call = answer["output"][-1]
        self.assertEqual((call["type"], call["name"]), ("function_call", "weather"))
        self.assertIn(json.loads(call["arguments"])["days"], range(1, 8))
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        self.ask("/v1/responses", {"input": [output], "tools": tools, "previous_response_id": answer["id"],
                                   "max_output_tokens": 4})

    @unittest.skipUnless(importlib.util.find_spec("anthropic"), "the anthropic package is not installed")
    def test_anthropics_client(self):
        import anthropic
        client = anthropic.Anthropic(base_url=self.cluster.url, api_key=KEY, max_retries=0)
        answer = client.messages.create(model="demo", **self.message())
        with client.messages.stream(model="demo", **self.message()) as stream:
            self.assertEqual("".join(stream.text_stream), answer.content[0].text)
            self.assertEqual(stream.get_final_message().stop_reason, "max_tokens")

    @unittest.skipUnless(importlib.util.find_spec("openai"), "the openai package is not installed")
    def test_openais_client(self):
        import openai
        client = openai.OpenAI(base_url=self.cluster.url + "/v1", api_key=KEY, max_retries=0)
        answer = client.responses.create(model="demo", input="Once", max_output_tokens=12, temperature=0)
        self.assertEqual(client.responses.retrieve(answer.id).output_text, answer.output_text)
        with client.responses.stream(model="demo", input="Once", max_output_tokens=12, temperature=0) as stream:
            deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
            self.assertEqual("".join(deltas), answer.output_text)


if __name__ == "__main__":
    main()
