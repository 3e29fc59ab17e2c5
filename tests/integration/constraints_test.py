"""What an answer must be, by the fields of OpenAI, vLLM and llama.cpp's server: the demo model, held to it."""

import json
import re

from cluster import Cluster, DemoTest, main

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"], "additionalProperties": False
}
MOVES = r"""
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n"){0,2}
move ::= (pawn | nonpawn | castle) [+#]?   # a sign at the end
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle ::= "O-O" "-O"?
"""
MOVE = r"(([a-h]x)?[a-h][1-8](=[NBKQR])?|[NBKQR][a-h]?[1-8]?x?[a-h][1-8]|O-O(-O)?)[+#]?"
LIST = r"""root ::= item{1,4}
item ::= "- " [a-z]{1,8} "\n"
"""


class Constraints(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster(cls.pack).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def text(self, seed=1, **fields):
        """The whole text of an answer, by completions and by chats: both take the fields."""
        options = {"max_tokens": 300, "temperature": 1, "seed": seed, **fields}
        texts = []
        for path, prompt in (("/v1/completions", {"prompt": "Once"}),
                             ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})):
            status, body = self.cluster.request("POST", path, {**prompt, **options})
            self.assertEqual(status, 200, body)
            choice = body["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop", choice)
            texts.append(choice["text"] if "text" in choice else choice["message"]["content"])
        return texts

    def is_person(self, text):
        person = json.loads(text)
        self.assertEqual(list(person), ["name", "age"])
        self.assertIn(person["age"], range(100))

    def test_schemas(self):
        for fields in ({"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}, {"json_schema": SCHEMA},
                       {"structured_outputs": {"json": SCHEMA}},
                       {"response_format": {"type": "json_object", "schema": SCHEMA}}):
            with self.subTest(fields=list(fields)):
                for text in self.text(**fields):
                    self.is_person(text)

    def test_regular_expressions_and_choices(self):
        for seed in range(3):
            for fields in ({"guided_regex": r"[A-Z][a-z]{2,6}-\d{3}"},
                           {"structured_outputs": {"regex": r"^[A-Z][a-z]{2,6}-\d{3}$"}}):
                for text in self.text(seed=seed, **fields):
                    self.assertTrue(re.fullmatch(r"[A-Z][a-z]{2,6}-\d{3}", text), text)
            for fields in ({"guided_choice": ["yes", "no", "not now"]},
                           {"structured_outputs": {"choice": ["yes", "no", "not now"]}}):
                for text in self.text(seed=seed, **fields):
                    self.assertIn(text, ["yes", "no", "not now"])

    def test_grammars(self):
        game = rf"1\. {MOVE} {MOVE}\n([1-9][0-9]?\. {MOVE} {MOVE}\n){{0,2}}"
        for seed in range(3):
            for field in ("grammar", "guided_grammar"):
                for text in self.text(seed=seed, **{field: MOVES}):
                    self.assertTrue(re.fullmatch(game, text), text)
            for text in self.text(seed=seed, structured_outputs={"grammar": LIST}):
                self.assertTrue(re.fullmatch(r"(- [a-z]{1,8}\n){1,4}", text), text)

    def test_what_nests_can_be_closed(self):
        """A model that would open brackets for ever still ends, or is cut: never an error."""
        grammar = 'root ::= "(" (root | inner)* ")"\ninner ::= "[" root "]"'
        ids = self.cluster.request("POST", "/tokenize", {"content": "(["})[1]["tokens"]
        status, body = self.cluster.request("POST", "/v1/completions", {
            "prompt": "a", "max_tokens": 200, "temperature": 0, "grammar": grammar,
            "logit_bias": {str(i): 100 for i in ids}})
        self.assertEqual(status, 200, body)

    def test_an_unknown_rule_is_refused_with_its_place(self):
        status, body = self.cluster.request("POST", "/v1/completions", {"prompt": "a", "grammar": "root ::=\n  item"})
        self.assertEqual((status, body["error"]["param"]), (400, "grammar"))
        self.assertIn("line 2, column 3: the rule 'item' is not defined", body["error"]["message"])

    def test_the_prompt_of_a_chat(self):
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        status, made = self.cluster.request("POST", "/apply-template", chat)
        self.assertEqual(status, 200, made)
        self.assertIn("Hi", made["prompt"])
        tokens = self.cluster.request("POST", "/tokenize", {**chat, "return_token_strs": True})[1]
        same = self.cluster.request("POST", "/tokenize", {"content": made["prompt"], "with_pieces": True})[1]
        self.assertEqual(tokens["tokens"], [t["id"] for t in same["tokens"]])
        self.assertEqual(len(tokens["token_strs"]), tokens["count"])
        pieces = b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in (t["piece"] for t in same["tokens"]))
        self.assertEqual(pieces.decode(), made["prompt"])
        usage = self.cluster.request("POST", "/v1/chat/completions", {**chat, "max_tokens": 1})[1]["usage"]
        self.assertEqual(usage["prompt_tokens"], tokens["count"])


if __name__ == "__main__":
    main()
