"""What clients get wrong: each gets one clear 4xx in OpenAI's shape, and the server goes on."""

import contextlib
import gzip
import json
import socket
import tempfile
import time
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
        """Asserts the status, OpenAI's error object, and that the message names what was wrong; then that the server
        serves."""
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
        self.refused(400, '{"messages": [{"role": "user", "content": "a", "x": ' + deep + "]" * 100000 + "}]}",
                     "nested", "/v1/chat/completions")

    def test_encodings(self):
        self.refused(400, b'{"prompt": "\xff\xfe"}', "UTF-8")
        self.refused(400, '{"prompt": "a"}'.encode("utf-16"), "UTF-8")
        self.refused(400, gzip.compress(b'{"prompt": "a"}'), "UTF-8")
        self.refused(400, b'{"prompt": "\xc0\xaf"}', "UTF-8")  # an overlong slash
        self.refused(400, '{"prompt": "\\ud800"}', "JSON")  # half a character
        self.refused(400, b'{"prompt": "a\x00"}', "JSON")

    def test_unknown_fields(self):
        self.refused(400, {"prompt": "a", "max_tokens": 1, "no_such_field": 1}, "no_such_field")
        self.refused(400, {"prompt": "a", "max_tokens": 1, "Temperature": 0}, "Temperature")
        self.refused(400, '{"prompt": "a", "max_tokens": 1, "max_tokens": 2}', "max_tokens")  # which of the two?
        self.refused(400, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "prompt": "b"}, "prompt",
                     "/v1/chat/completions")
        self.refused(400, {"prompt": "a", "stream": True, "stream_options": {"include_everything": True}},
                     "include_everything")

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

    def test_too_long_a_chat_is_refused_before_it_is_tokenized(self):
        begin = time.monotonic()
        body = {"messages": [{"role": "user", "content": " " * 15_000_000}]}
        self.refused(400, body, "bytes, more than the context", "/v1/chat/completions")
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_request_that_could_be_two_is_refused_and_nothing_behind_it_is_read(self):
        hidden = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
        for headers in (b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n",
                        b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"Host: y\r\n"):
            with self.subTest(headers=headers), socket.create_connection((self.cluster.host, self.cluster.port),
                10) as s:
                s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n" + hidden)
                heard = b"".join(iter(lambda: s.recv(4096), b""))
                self.assertTrue(heard.startswith(b"HTTP/1.1 400 "), heard)
                self.assertEqual(heard.count(b"HTTP/1.1 "), 1, heard)

    def test_routes_by_other_names(self):
        models = self.cluster.request("GET", "/v1/models")
        self.assertEqual(self.cluster.request("GET", "/models"), models)
        name = models[1]["data"][0]["id"]
        self.assertEqual(self.cluster.request("GET", "/models/" + name)[1]["id"], name)
        self.assertEqual(self.cluster.request("POST", "/completions", {"prompt": "a", "max_tokens": 1})[0], 200)
        self.refused(400, {}, "messages", "/chat/completions")
        self.assertEqual(self.cluster.request("GET", "/ping")[0], 200)
        self.assertIn("version", self.cluster.request("GET", "/version")[1])
        self.assertEqual(self.cluster.request("GET", "/load")[1], {"server_load": 0})

    def test_max_tokens(self):
        self.refused(400, {"prompt": "a", "max_tokens": 0}, "max_tokens")
        self.refused(400, {"prompt": "a", "max_tokens": -5}, "max_tokens")
        self.refused(400, {"prompt": "a", "max_tokens": "many"}, "max_tokens")
        self.refused(400, {"prompt": "a", "max_tokens": 10**30}, "max_tokens")

    def test_types_and_ranges(self):
        for field, value in [("temperature", "hot"), ("temperature", -1), ("top_p", 2), ("top_p", "x"), ("n", 0),
                             ("n", "two"), ("stream", "yes"), ("stop", 5), ("logprobs", "all"), ("logprobs", -1),
                             ("seed", "s"), ("echo", 3)]:
            with self.subTest(field=field, value=value):
                self.refused(400, {"prompt": "a", "max_tokens": 1, field: value}, field)

    def test_parameters_that_are_not_supported_are_refused_by_name(self):
        for field, value in [("logit_bias", {"5": 1000}), ("presence_penalty", 5), ("frequency_penalty", -5),
                             ("best_of", 0), ("stop_token_ids", [10**8]), ("allowed_token_ids", []),
                             ("min_tokens", 2), ("truncate_prompt_tokens", 0), ("suffix", "x")]:
            with self.subTest(field=field):
                self.refused(400, {"prompt": "a", "max_tokens": 1, field: value}, field)

    def test_what_an_answer_shall_look_like(self):
        def schema(s):
            return {"type": "json_schema", "json_schema": {"name": "x", "schema": s}}
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        tool = {"type": "function", "function": {"name": "f"}}
        for field, value in [("response_format", "json"), ("response_format", {"type": "xml"}),
                             ("response_format", schema({"not": {}})),
                             ("response_format", schema({"type": "string", "pattern": "(?=a)"})),
                             ("response_format", schema({"$ref": "#"})),
                             ("response_format", schema({"type": "string", "maxLength": 10**8})), ("tools", 5),
                             ("tools", [tool]), ("tool_choice", "required"), ("functions", [tool]),
                             ("grammar", "root ::= other"), ("guided_regex", "(a"),
                             ("guided_choice", []), ("guided_json", {"not": {}}),
                             ("structured_outputs", {"structural_tag": "x"}), ("json_schema", 5),
                             ("guided_whitespace_pattern", " "), ("logit_bias", {"99999999": 1}),
                             ("logit_bias", {"a": 1}), ("modalities", ["audio"]), ("top_logprobs", 5),
                             ("max_completion_tokens", 0)]:
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
        for path in ("/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/../../etc/passwd", "/../etc/passwd",
                     "/v1/models/" + "a" * 5000, "//", "/%00"):
            with self.subTest(path=path[:30]):
                self.assertEqual(self.cluster.request("GET", path)[0], 404)

    def test_paths_of_files_and_batches(self):
        for method, path in (("GET", "/v1/files/../../etc/passwd"), ("GET", "/v1/files/..%2f..%2fetc%2fpasswd/content"),
                             ("DELETE", "/v1/files/../batches.db"), ("GET",
                                                                     "/v1/files/file-0123456789abcdef0123456/content"),
                             ("GET", "/v1/files/file-%00/content"), ("GET", "/v1/files//content"),
                             ("GET", "/v1/files/file-" + "0" * 24 + "/../../x"), ("GET", "/v1/files/" + "f" * 5000),
                             ("POST", "/v1/batches/../files/cancel"), ("GET", "/v1/batches/batch_" + "0" * 24)):
            with self.subTest(method=method, path=path[:50]):
                status, answer = self.cluster.request(method, path)
                self.assertEqual((status, answer["error"]["type"]), (404, "not_found_error"), answer)
        for order in ({},
                      {"input_file_id": "../../etc/passwd", "endpoint": "/v1/completions", "completion_window": "24h"},
                      {"input_file_id": "file-" + "0" * 24, "endpoint": "/v1/embeddings", "completion_window": "24h"}):
            with self.subTest(order=order):
                self.assertIn(self.cluster.request("POST", "/v1/batches", order)[0], (400, 404))

    def upload(self, text, purpose="batch"):
        form = (
            f'--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n--XX\r\nContent-Disposition: '
            f'form-data; name="file"; '
            'filename="../../in.jsonl"\r\n\r\n').encode() + text + b"\r\n--XX--\r\n"
        return self.cluster.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=XX"})

    def test_uploads(self):
        self.assertEqual(self.upload(b"x", "fine-tune")[0], 400)
        for type, body in (("multipart/form-data", b"--XX--"), ("multipart/form-data; boundary=" + "x" * 100,
                                                                b""), ("multipart/form-data; boundary=XX", b"no form"),
                           ("text/plain", b"x"), ("multipart/form-data; boundary=XX", b"--XX\r\n" + b"h" * 20000)):
            with self.subTest(type=type[:40]):
                self.assertEqual(self.cluster.request("POST", "/v1/files", body, {"Content-Type": type})[0], 400)
        self.assertEqual(self.cluster.request("GET", "/v1/files")[1]["data"], [])

    def test_lines_of_a_batch(self):
        """Each bad line is told of by itself; the rest runs."""
        def line(custom_id, **change):
            return {
                "custom_id": custom_id, "method": "POST", "url": "/v1/completions",
                "body": {"prompt": "a", "max_tokens": 2}, **change
            }

        bad = {
            "method": line("method", method="GET"), "url": line("url", url="/v1/embeddings"),
            "body": line("body", body=[]), "stream": line("stream", body={"prompt": "a", "stream": True}),
            "model": line("model", body={"prompt": "a", "model": "gpt-99"}), "field": line("field", priority=1),
            "range": line("range", body={"prompt": "a",
                                         "max_tokens": -1}), "long": line("long", body={"prompt": "word " * 50000})
        }
        rows = [json.dumps(line(f"good-{i}")) for i in range(3)] + [json.dumps(r) for r in bad.values()]
        rows += [
            "nonsense", '{"custom_id": ',
            json.dumps(line("good-0")),
            json.dumps(line("x" * 600)),
            json.dumps(line(7)), "[" * 5000
        ]
        status, file = self.upload("\n".join(rows).encode() + b'\n{"custom_id": "\xff"}')
        self.assertEqual(status, 200, file)
        status, batch = self.cluster.request(
            "POST", "/v1/batches",
            {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"})
        self.assertEqual(status, 200, batch)
        path = "/v1/batches/" + batch["id"]
        self.cluster.wait_until(lambda: self.cluster.request("GET", path)[1]["status"] == "completed", 60,
                                "the end of the batch")
        batch = self.cluster.request("GET", path)[1]
        self.assertEqual(batch["request_counts"], {"total": len(rows) + 1, "completed": 3, "failed": len(rows) - 2})
        with contextlib.closing(self.cluster.connect()) as connection:
            connection.request("GET", f"/v1/files/{batch['error_file_id']}/content")
            errors = [json.loads(t) for t in connection.getresponse().read().decode().splitlines()]
        self.assertEqual(len(errors), len(rows) - 2)
        told = {e["custom_id"]: e for e in errors if e["custom_id"] in bad}
        self.assertEqual(set(told), set(bad))
        for name in ("range", "long"):  # asked for and refused by the route itself
            self.assertEqual(told[name]["response"]["status_code"], 400)
        self.assertIn("duplicate_custom_id", [e["error"]["code"] for e in errors if e.get("error")])
        self.assertEqual(self.cluster.request("DELETE", "/v1/files/" + file["id"])[0], 200)
        for kind in ("output_file_id", "error_file_id"):
            self.cluster.request("DELETE", "/v1/files/" + batch[kind])

    def test_a_flood_of_slow_clients_leaves_room_for_others(self):
        """Heads that come a byte at a time, and bodies that do not come: others are answered meanwhile."""
        with contextlib.ExitStack() as stack:
            slow = [
                stack.enter_context(socket.create_connection((self.cluster.host, self.cluster.port), 10))
                for _ in range(200)
            ]
            begun = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
            for at in range(len(begun)):
                for s in slow:
                    s.sendall(begun[at:at + 1])
                if at % 16 == 0:
                    self.assertEqual(self.cluster.complete("Once", max_tokens=1)["usage"]["completion_tokens"], 1)
            self.assertEqual(self.cluster.request("GET", "/health")[0], 200)

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
        for junk in (b"\x00" * 4096, b"GET / HTTP/9.9\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n"):
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
