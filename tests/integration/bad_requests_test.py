"""What clients get wrong: each gets one clear 4xx in OpenAI's shape, and the server goes on."""

import json
import socket
import tempfile
import unittest

from cluster import DEMO, Cluster, main, pack


class BadRequests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.cluster = Cluster(pack(DEMO, cls.dir.name + "/pack")).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()
        cls.dir.cleanup()

    def refused(self, status, body, words, path="/v1/completions"):
        """Asserts the status, OpenAI's error object, and that the message names what was wrong; then that the server serves."""
        got, answer = self.cluster.request("POST", path, body)
        self.assertEqual(got, status, answer)
        error = answer["error"]
        self.assertIsInstance(error["message"], str)
        self.assertIn("type", error)
        self.assertIn(words, error["message"] + str(error.get("param")))
        self.assertEqual(self.cluster.request("GET", "/health")[0], 200)

    def test_not_json(self):
        for body in ("", "{", "[1,2", "nonsense", '{"prompt": "a"} trailing'):
            self.refused(400, body, "JSON")
        self.refused(400, "[]", "object")
        deep = "[" * 100000
        self.refused(400, deep, "JSON")
        self.refused(400, '{"prompt": "a", "x": ' + deep + "]" * 100000 + "}", "nested")
        self.refused(400, '{"messages": [{"role": "user", "content": "a", "x": ' + deep + "]" * 100000 + "}]}", "nested", "/v1/chat/completions")

    def test_invalid_utf8(self):
        self.refused(400, b'{"prompt": "\xff\xfe"}', "UTF-8")

    def test_prompt(self):
        self.refused(400, {}, "prompt")
        self.refused(400, {"prompt": {"a": 1}}, "prompt")
        self.refused(400, {"prompt": [1, "a"]}, "prompt")
        self.refused(400, {"prompt": [-1]}, "token")
        self.refused(400, {"prompt": [10**9]}, "token")
        self.refused(400, {"prompt": [1.5]}, "prompt")

    def test_too_long_a_prompt(self):
        status, answer = self.cluster.request("POST", "/v1/completions", {"prompt": "word " * 50000, "stream": True})
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"]["type"], "exceed_context_size_error")
        self.assertGreater(answer["error"]["n_prompt_tokens"], answer["error"]["n_ctx"])

    def test_max_tokens(self):
        self.refused(400, {"prompt": "a", "max_tokens": 0}, "max_tokens")
        self.refused(400, {"prompt": "a", "max_tokens": -5}, "max_tokens")
        self.refused(400, {"prompt": "a", "max_tokens": "many"}, "max_tokens")
        self.refused(400, {"prompt": "a", "max_tokens": 10**30}, "max_tokens")

    def test_types_and_ranges(self):
        for field, value in [("temperature", "hot"), ("temperature", -1), ("top_p", 2), ("top_p", "x"), ("n", 0), ("n", "two"),
                             ("stream", "yes"), ("stop", 5), ("logprobs", "all"), ("logprobs", -1), ("seed", "s"), ("echo", 3)]:
            with self.subTest(field=field, value=value):
                self.refused(400, {"prompt": "a", "max_tokens": 1, field: value}, field)

    def test_parameters_that_are_not_supported_are_refused_by_name(self):
        for field, value in [("logit_bias", {"5": 1000}), ("presence_penalty", 5), ("frequency_penalty", -5), ("best_of", 3),
                             ("suffix", "x")]:
            with self.subTest(field=field):
                self.refused(400, {"prompt": "a", "max_tokens": 1, field: value}, field)

    def test_what_an_answer_shall_look_like(self):
        def schema(s):
            return {"type": "json_schema", "json_schema": {"name": "x", "schema": s}}
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        tool = {"type": "function", "function": {"name": "f"}}
        for field, value in [("response_format", "json"), ("response_format", {"type": "xml"}), ("response_format", schema({"not": {}})),
                             ("response_format", schema({"type": "string", "pattern": "(?=a)"})), ("response_format", schema({"$ref": "#"})),
                             ("response_format", schema({"type": "string", "maxLength": 10**8})), ("tools", 5), ("tools", [tool]),
                             ("tool_choice", "required"), ("functions", [tool]), ("logit_bias", {"99999999": 1}), ("logit_bias", {"a": 1}),
                             ("modalities", ["audio"]), ("top_logprobs", 5), ("max_completion_tokens", 0)]:
            with self.subTest(field=field, value=value):
                self.refused(400, {**chat, field: value}, field, "/v1/chat/completions")

    def test_oversized_bodies_and_headers(self):
        for status, request in [(413, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"),
                                (431, b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 20000 + b"\r\n")]:
            with self.subTest(status=status), socket.create_connection((self.cluster.host, self.cluster.port), 10) as s:
                s.settimeout(10)
                try:
                    s.sendall(request)
                except OSError:
                    pass
                self.assertIn(str(status).encode(), s.recv(4096).split(b"\r\n")[0])
            self.assertEqual(self.cluster.request("GET", "/health")[0], 200)

    def test_paths(self):
        for path in ("/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/../../etc/passwd", "/../etc/passwd", "/v1/models/" + "a" * 5000, "//", "/%00"):
            with self.subTest(path=path[:30]):
                self.assertEqual(self.cluster.request("GET", path)[0], 404)

    def test_unknown_model(self):
        self.refused(404, {"prompt": "a", "model": "gpt-99"}, "gpt-99")

    def test_chat(self):
        for body in ({}, {"messages": "hi"}, {"messages": []}, {"messages": [1]}, {"messages": [{"role": "user"}]}):
            with self.subTest(body=body):
                self.refused(400, body, "messages", "/v1/chat/completions")

    def test_unknown_routes_and_methods(self):
        self.assertEqual(self.cluster.request("GET", "/v1/nothing")[0], 404)
        self.assertIn(self.cluster.request("GET", "/v1/completions")[0], (404, 405))
        self.assertEqual(self.cluster.request("POST", "/tokenize", {"content": 5})[0], 400)
        status, answer = self.cluster.request("GET", "/v1/models/gpt-99")
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_garbage_on_the_socket(self):
        for junk in (b"\x00" * 4096, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n"):
            with socket.create_connection((self.cluster.host, self.cluster.port), 5) as s:
                s.settimeout(5)
                s.sendall(junk)
                try:
                    s.recv(4096)
                except OSError:
                    pass
            self.assertEqual(self.cluster.request("GET", "/health")[0], 200)

    def test_it_still_answers(self):
        body = self.cluster.complete("Once upon a time", max_tokens=4, temperature=0)
        self.assertEqual(body["usage"]["completion_tokens"], 4)
        self.assertEqual(json.dumps(body["choices"][0]["finish_reason"]), '"length"')


if __name__ == "__main__":
    main()
