"""Conversations to render chat templates with: what clients send, and what they should not send but do."""

import random

TEXTS = [
    "Hello", " Hi <b>\"there\"</b> & it's é你好 ", "", "   ", "two\nlines\n", "tabs\tand 'quotes'",
    "{{ braces }} {% raw %}",
    "<think>\nhmm\n</think>\n\nok", "</think>twice</think>", "<think>open", "a<|im_end|>b", "😀 emoji",
    "\\n \\ backslash",
    "[INST] x [/INST]", "/no_think please", "<tool_response>\n1\n</tool_response>", "x" * 300, "\r\nwindows\r\n",
    "\u2028sep"
]
NAMES = ["get_weather", "f", "search.web", "python", "brave_search"]
SCHEMAS = [
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"city": {"type": "string", "description": "Where <city> is"}},
     "required": ["city"]},
    {"type": "object", "properties": {
        "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        "days": {"type": ["integer", "null"], "minimum": 1, "description": "é 你"},
        "list": {"type": "array", "items": {"type": "number"}},
        "nested": {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}},
                   "required": ["a"], "additionalProperties": False},
    }, "required": ["unit", "days"]},
]
ARGUMENTS = [
    {}, {"city": "Zürich"}, {"a": 1, "b": [1.5, None, True], "c": "x'y\"z<&>"}, {"nested": {"k": {"l": []}}},
    {"text": "two\nlines"},
    '{"city": "Bern"}', '{"a": 1}', "", "not json",
]
VALUES = [None, True, False, 0, 1, -7, 2.5, 1e22, "", "text", [], {}, ["a", 1], {"k": "v"}]


class Conversations:
    """Conversations by number: the same for a seed and a number."""

    def __init__(self, seed):
        self._seed = seed

    def conversation(self, number):
        """(messages, the variables besides them)"""
        self.random = random.Random(f"{self._seed}/{number}")
        self._calls = []
        kind = number % 8
        messages = self._odd_messages() if kind == 7 else self._messages(with_tools=kind in (2, 3, 4),
            with_parts=kind == 5)
        extra = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": self.random.random() < 0.7}
        if kind in (2, 3, 4) and self.random.random() < 0.9:
            extra["tools"] = [self._tool() for _ in range(self.random.randint(1, 3))]
        elif self.random.random() < 0.1:
            extra["tools"] = []
        for name, values in (("enable_thinking", [True, False]), ("documents", [self._documents()]),
                             ("reasoning_effort", ["low", "high"]), ("tool_choice", ["auto", None]), ("thinking", [True,
                                 False]),
                             ("pad_token", ["<pad>"]), ("unk_token", ["<unk>"]), ("date_string", ["26 Jul 2024"]),
                             ("builtin_tools", [["wolfram_alpha"]]), ("xml_tools", [[]]), ("clear_thinking", [True,
                                 False])):
            if self.random.random() < 0.15:
                extra[name] = self.random.choice(values)
        return messages, extra

    def _documents(self):
        return [{"title": self._text(), "text": self._text()} for _ in range(self.random.randint(0, 2))]

    def _text(self):
        return self.random.choice(TEXTS)

    def _tool(self):
        function = {"name": self.random.choice(NAMES), "description": self._text() or "does it",
                    "parameters": self.random.choice(SCHEMAS)}
        if self.random.random() < 0.2:
            del function["description"]
        if self.random.random() < 0.2:
            function["return"] = {"type": "string"}
        if self.random.random() < 0.1:
            function["strict"] = True
        return function if self.random.random() < 0.1 else {"type": "function", "function": function}

    def _messages(self, with_tools, with_parts):
        messages = []
        content = self._parts if with_parts else self._text
        if self.random.random() < 0.6:
            messages.append({"role": "developer" if self.random.random() < 0.15 else "system", "content": content()})
        for _ in range(self.random.randint(1, 4)):
            messages.append({"role": "user", "content": content()})
            if with_tools and self.random.random() < 0.8:
                messages += self._round_of_tools()
            if self.random.random() < 0.7:
                messages.append(self._assistant(content))
        if self.random.random() < 0.6:
            messages.append({"role": "user", "content": content()})
        return messages

    def _assistant(self, content):
        message = {"role": "assistant", "content": content()}
        if self.random.random() < 0.3:
            message[self.random.choice(["reasoning_content", "reasoning", "thinking"])] = self._text()
        if self.random.random() < 0.1:
            message["tool_calls"] = self.random.choice([None, []])
        if self.random.random() < 0.1:
            message["prefix"] = True
        return message

    def _round_of_tools(self):
        calls = []
        for _ in range(self.random.randint(1, 2)):
            function = {"name": self.random.choice(NAMES), "arguments": self.random.choice(ARGUMENTS)}
            call = {"type": "function", "function": function}
            if self.random.random() < 0.8:
                call["id"] = f"call{len(self._calls):05d}"
            self._calls.append(call)
            calls.append(call)
        message = {"role": "assistant", "content": self.random.choice([None, "", self._text()]), "tool_calls": calls}
        if self.random.random() < 0.1:
            del message["content"]
        if self.random.random() < 0.3:
            message["reasoning_content"] = self._text()
        answers = []
        for call in calls:
            answer = {"role": "tool", "content": self.random.choice([self._text(), "42", self._parts()])}
            if "id" in call:
                answer["tool_call_id"] = call["id"]
            if self.random.random() < 0.5:
                answer["name"] = call["function"]["name"]
            answers.append(answer)
        return [message, *answers]

    def _parts(self):
        parts = [{"type": "text", "text": self._text()} for _ in range(self.random.randint(1, 2))]
        if self.random.random() < 0.2:
            parts.append(self.random.choice([{"type": "image"}, {"type": "image_url", "image_url": {"url": "data:x"}},
                                             {"type": "video"},
                                             {"type": "thinking", "thinking": "hm"}]))
        return parts

    def _odd_messages(self):
        """Any value in any place: what a client may send by mistake."""
        messages = self._messages(with_tools=self.random.random() < 0.5, with_parts=self.random.random() < 0.3)
        for _ in range(self.random.randint(1, 2)):
            message = self.random.choice(messages)
            where = self.random.choice(["content", "role", "tool_calls", "name", "reasoning_content", "extra"])
            message[where] = self.random.choice(VALUES)
        if self.random.random() < 0.1:
            messages = []
        return messages
