"""/openapi.json is true: the routes that it describes are served, its examples are answered, and the answers are as it
says."""

import copy
import json
import sys
import tempfile

from batch_box import BatchTest, line
from cluster import Cluster, main
from templates import SCHEMA, THINKING, TOOLS, pack_with

try:
    import jsonschema
except ImportError:  # Debian's package is for Debian's Python
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import jsonschema
    except ImportError:
        print("there is no Python module jsonschema here (package python3-jsonschema)")
        sys.exit(77)

METHODS = ("get", "put", "post", "delete", "patch")
USER = {"role": "user", "content": "Once"}
FUNCTION = {"name": "weather", "description": "of a town", "parameters": SCHEMA}


def close_objects(schema):
    """Lets objects have no other members than those that are described."""
    if isinstance(schema, dict):
        if "properties" in schema and not {"additionalProperties", "unevaluatedProperties"} & set(schema):
            schema["additionalProperties"] = False
        for value in schema.values():
            close_objects(value)
    elif isinstance(schema, list):
        for value in schema:
            close_objects(value)


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


class OpenApi(BatchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster(cls.pack).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.document = cls.cluster.request("GET", "/openapi.json")[1]
        cls.closed = copy.deepcopy(cls.document["components"])
        close_objects(cls.closed)

    def operations(self):
        for path, item in self.document["paths"].items():
            for method in METHODS:
                if method in item:
                    yield path, method, item[method]

    def resolved(self, value):
        while "$ref" in value:
            found = self.document
            for part in value["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            value = found
        return value

    def errors(self, schema, value, answer):
        """What is wrong with a value; of an answer, also members that are not described."""
        schema = {**copy.deepcopy(schema), "components": self.closed if answer else self.document["components"]}
        if answer:
            close_objects({key: inner for key, inner in schema.items() if key != "components"})
            if "properties" in schema:
                schema.setdefault("additionalProperties", False)
        return [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(value)]

    def send(self, method, path, body=None, content="application/json"):
        """(status, media type, bytes)."""
        connection = self.cluster.connect()
        connection.request(method.upper(), path, body if isinstance(body, (str, type(None))) else json.dumps(body),
                           {"Content-Type": content})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, response.headers.get_content_type(), text

    def check(self, operation, answer, where):
        """The answer is one of 200 that the operation describes."""
        status, media, text = answer
        self.assertEqual(status, 200, f"{where}: {text[:300]}")
        content = operation["responses"]["200"]["content"]
        self.assertIn(media, content, where)
        if media == "application/json":
            self.assertEqual(self.errors(content[media]["schema"], json.loads(text), True), [], where)
        elif media == "text/event-stream":
            self.check_stream(content[media], text.decode(), where)

    def check_stream(self, content, text, where):
        """Every event is as described, and only the last one ends the stream."""
        blocks = [dict(row.split(": ", 1) for row in block.split("\n") if row and not row.startswith(":"))
                  for block in text.split("\n\n")]
        blocks = [block for block in blocks if block]
        last = content.get("x-moestro-last-event")
        if last is None:
            self.assertEqual(blocks.pop(), {"data": "[DONE]"}, where)
        self.assertGreater(len(blocks), 1, where)
        for i, block in enumerate(blocks):
            event = json.loads(block.pop("data"))
            self.assertEqual(block, {"event": event["type"]} if "type" in event else {}, where)
            self.assertEqual(self.errors(content["x-moestro-event"], event, True), [], where)
            if last is not None:
                ends = not self.errors(last, event, False)
                self.assertEqual(ends, i == len(blocks) - 1, f"{where}: {event}")

    def uploaded(self, lines=1, tokens=1):
        status, file = self.upload(self.cluster, "\n".join(json.dumps(line(i, tokens=tokens)) for i in range(lines)))
        self.assertEqual(status, 200, file)
        return file

    def responded(self):
        return self.cluster.request("POST", "/v1/responses", {"input": "Once", "max_output_tokens": 1})[1]

    def filled(self, path, method):
        """The path with ids of what is there."""
        if "{model}" in path:
            path = path.replace("{model}", self.cluster.request("GET", "/v1/models")[1]["data"][0]["id"])
        if "{file}" in path:
            path = path.replace("{file}", self.uploaded()["id"])
        if "{batch}" in path:
            # One that is to be cancelled has work for a while.
            file = self.uploaded(lines=64, tokens=64) if path.endswith("/cancel") else self.uploaded()
            path = path.replace("{batch}", self.create(self.cluster, file["id"])[1]["id"])
        if "{response}" in path:
            path = path.replace("{response}", self.responded()["id"])
        self.assertNotIn("{", path, f"{method}: a parameter that this test does not know")
        return path

    def ready(self, body):
        """An example, with the id of a file that is there."""
        return {**body, "input_file_id": self.uploaded()["id"]} if "input_file_id" in body else body

    def json_requests(self):
        """Operations with a JSON body, each with its schema and its examples."""
        found = 0
        for path, method, operation in self.operations():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content:
                found += 1
                yield path, operation, content["schema"], [one["value"] for one in content["examples"].values()]
        self.assertGreater(found, 5)

    def test_the_document_is_in_order(self):
        self.assertEqual(self.document["openapi"], "3.1.0")
        self.assertEqual(self.document["info"]["version"], self.cluster.request("GET", "/version")[1]["version"])
        for reference in references(self.document):
            self.assertIsInstance(self.resolved({"$ref": reference}), dict, reference)
        for name, schema in self.document["components"]["schemas"].items():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.assertIn(f"#/components/schemas/{name}", set(references(self.document)), "a schema that nobody uses")
        ids = [operation["operationId"] for _, _, operation in self.operations() if "operationId" in operation]
        self.assertEqual(len(ids), len(set(ids)))
        for path, method, operation in self.operations():
            named = {self.resolved(p)["name"] for p in self.document["paths"][path].get("parameters", [])}
            self.assertEqual(named, {part.strip("{}") for part in path.split("/") if part.startswith("{")}, path)
            self.assertIn("summary", operation, f"{method} {path}")
            self.assertEqual(set(operation["responses"]), {"200", "default"}, f"{method} {path}")

    def test_what_is_described_is_served_and_answers_as_described(self):
        for path, method, operation in self.operations():
            if "requestBody" not in operation:
                self.check(operation, self.send(method, self.filled(path, method)), f"{method} {path}")
            for parameter in map(self.resolved, operation.get("parameters", [])):
                for value in parameter["schema"].get("enum", []):
                    query = f"{self.filled(path, method)}?{parameter['name']}={value}"
                    self.check(operation, self.send(method, query), query)
        for path, operation, schema, examples in self.json_requests():
            for example in examples:
                where = f"{path} with {example}"
                self.assertEqual(self.errors(schema, example, False), [], where)
                self.check(operation, self.send("post", self.filled(path, "post"), self.ready(example)), where)
        self.check(self.document["paths"]["/v1/files"]["post"],
                   (200, "application/json", json.dumps(self.uploaded()).encode()), "an upload")

    def use_template(self, template):
        """This test goes on with a cluster whose model has the template."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.cluster = Cluster(pack_with(template, directory.name)).__enter__()
        self.addCleanup(self.cluster.__exit__)

    def check_answers(self, path, body, word):
        """The request, its answer and the stream of it are as described; both have the word. Returns the answer."""
        operation = self.document["paths"][path]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = {**body, "temperature": 0}
        self.assertEqual(self.errors(schema, body, False), [], path)
        whole, stream = (self.send("post", path, {**body, "stream": streamed}) for streamed in (False, True))
        for answer in (whole, stream):
            self.check(operation, answer, f"{path} with {body}")
            self.assertIn(word, answer[2].decode(), path)
        return json.loads(whole[2])

    def test_calls_of_tools_are_as_described(self):
        self.use_template(TOOLS)
        tools = [{"type": "function", "function": FUNCTION}]
        body = {"messages": [USER], "max_tokens": 200, "tools": tools, "tool_choice": "required"}
        self.check_answers("/v1/chat/completions", body, '"tool_calls":[')
        tools = [{"name": "weather", "input_schema": SCHEMA}]
        body = {"messages": [USER], "max_tokens": 200, "tools": tools, "tool_choice": {"type": "any"}}
        answer = self.check_answers("/v1/messages", body, "tool_use")
        result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "sunny"}
        turns = [USER, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]
        self.check_answers("/v1/messages", {**body, "messages": turns}, "tool_use")
        tools = [{"type": "function", **FUNCTION}]
        body = {"input": "Once", "max_output_tokens": 200, "tools": tools, "tool_choice": "required"}
        answer = self.check_answers("/v1/responses", body, "function_call")
        call = answer["output"][-1]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        self.check_answers("/v1/responses", {**body, "input": [USER, call, output]}, "function_call")
        going_on = {**body, "input": [output], "previous_response_id": answer["id"]}
        second = self.check_answers("/v1/responses", going_on, "function_call")
        for more in ("", "/input_items"):
            operation = self.document["paths"]["/v1/responses/{response}" + more]["get"]
            self.check(operation, self.send("get", f"/v1/responses/{second['id']}{more}"), more)

    def test_reasoning_is_as_described(self):
        self.use_template(THINKING)
        self.check_answers("/v1/chat/completions", {"messages": [USER], "max_tokens": 8}, "reasoning_content")
        self.check_answers("/v1/messages", {"messages": [USER], "max_tokens": 8}, '"thinking"')
        self.check_answers("/v1/responses", {"input": "Once", "max_output_tokens": 8}, "reasoning_text")

    def test_no_other_method_is_served(self):
        for path, item in self.document["paths"].items():
            where = self.filled(path, "any")
            for method in set(METHODS) - set(item):
                self.assertEqual(self.send(method, where)[0], 405, f"{method} {path}")

    def test_every_field_that_is_described_is_known_and_no_other(self):
        for path, operation, schema, examples in self.json_requests():
            if f"/v1{path}" in self.document["paths"]:
                continue  # another name of a path
            parts = [self.resolved(schema), *map(self.resolved, self.resolved(schema).get("allOf", []))]
            fields = {name for part in parts for name in part.get("properties", {})}
            required = {name for part in parts for name in part.get("required", [])}
            self.assertGreaterEqual(len(fields), 1 if path.endswith("/cancel") else 2, path)
            example = next(e for e in examples if not e.get("stream"))
            for name in fields - required - set(example):
                without = self.ready({**example, name: None})
                self.check(operation, self.send("post", self.filled(path, "post"), without), f"{path}: {name}")
            for name in [*sorted(fields), "no_such_field"]:
                strange = {**example, name: {"strange": [1]}}
                _, _, text = self.send("post", self.filled(path, "post"), strange)
                message = (json.loads(text).get("error") or {}).get("message", "")
                unknown = f"'{name}': this field is not known here" in message
                self.assertEqual(unknown, name == "no_such_field", f"{path}: {name}: {text}")
            self.assertNotEqual(self.errors(schema, strange, False), [], path)

    def check_error(self, operation, answer, where):
        """The answer is an error as the operation describes it."""
        status, media, text = answer
        self.assertTrue(400 <= status < 500, f"{where}: {status}")
        self.assertEqual(media, "application/json", where)
        schema = self.resolved(operation["responses"]["default"])["content"][media]["schema"]
        self.assertEqual(self.errors(schema, json.loads(text), True), [], where)

    def test_errors_are_as_described(self):
        paths, text = self.document["paths"], "a " * 100000
        for path, operation, *_ in self.json_requests():
            self.check_error(operation, self.send("post", path, {}), f"{path} with nothing")
        too_long = {
            "/v1/completions": {"prompt": text}, "/completion": {"prompt": text}, "/v1/responses": {"input": text},
            "/v1/messages": {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
        }
        for path, body in too_long.items():
            self.check_error(paths[path]["post"], self.send("post", path, body), f"{path} with a long text")
        for path, method, operation in self.operations():
            if "{" in path:
                unknown = "/".join("none" if part.startswith("{") else part for part in path.split("/"))
                self.check_error(operation, self.send(method, unknown), f"{method} {unknown}")
            else:
                other = next(m for m in METHODS if m not in paths[path])
                self.check_error(operation, self.send(other, path), f"{other} {path}")
        self.check_error(paths["/v1/completions"]["post"], self.send("get", "/none"), "a path that is not served")


if __name__ == "__main__":
    main()
