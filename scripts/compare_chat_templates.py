#!/usr/bin/env python3
"""Renders chat templates with Moestro and with Python's Jinja2, and compares the two.

  scripts/compare_chat_templates.py [--conversations N] [--seed N] TEMPLATE|FOLDER ...
      real templates, N conversations each
  scripts/compare_chat_templates.py --programs N [--seed N]                              N generated templates
      --renderer PROGRAM      Moestro's side: the test program render_lines (build/dev/tests/render_lines)
      --show N                at most N differences are printed (5)

Needs Jinja2 3.1 (Debian's python3-jinja2, or pip's). A text must be equal; where Jinja2 fails, Moestro must fail; what
Moestro refuses by name, as not supported or beyond a limit, is counted. Exits 1 if one thing differs, 2 if nothing was
compared.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "python"))

import chat_conversations
import chat_programs
import jinja_reference


def ask(program, questions):
    """What Moestro's renderer answers, one object for each question."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([program], input=lines, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    answers = done.stdout.split("\n")[:-1]
    if done.returncode != 0 or len(answers) != len(questions):
        raise SystemExit(f"the renderer ended with status {done.returncode}, asked: "
                         f"{json.dumps(questions[min(len(answers), len(questions) - 1)])}")
    return [json.loads(answer) for answer in answers]


def verdict(expected, got):
    """One word for what became of one rendering."""
    if "raises" in expected and got.get("error") == expected["raises"]:
        return "equal"
    if "text" in expected and got.get("text") == expected["text"]:
        return "equal"
    if "fails" in expected and "error" in got:
        return "both fail"
    return "refused" if got.get("code") in ("unsupported", "exhausted") else "different"


class Comparison:

    def __init__(self, program, show):
        self._program, self._show = program, show
        self._env = jinja_reference.environment()
        self.verdicts = collections.Counter()
        self.refusals = collections.Counter()

    def compare(self, cases):
        """Each case: a name, a template, and conversations of a number, messages and the variables besides them."""
        questions = []
        for _, source, conversations in cases:
            questions.append({"template": source})
            questions += [{"now": jinja_reference.NOW, "messages": m, "extra": e} for _, m, e in conversations]
        answers = iter(ask(self._program, questions))
        for name, source, conversations in cases:
            template, parsed = jinja_reference.Template(self._env, source), next(answers)
            for number, messages, extra in conversations:
                expected, answer = template.render(messages, extra), next(answers)
                got = parsed or answer
                word = verdict(expected, got)
                self.verdicts[word] += 1
                if word == "refused":
                    self.refusals[re.sub(r", line \d+", "", got["error"])] += 1
                if word == "different":
                    self._report(name, source, number, messages, extra, expected, got)

    def _report(self, name, source, number, messages, extra, expected, got):
        if self._show == 0:
            return
        self._show -= 1
        print(f"-- {name}, conversation {number}")
        if len(source) < 2000:
            print("template:", json.dumps(source, ensure_ascii=False))
        print("messages:", json.dumps(messages, ensure_ascii=False))
        print("extra:   ", json.dumps(extra, ensure_ascii=False))
        print("Jinja2:  ", json.dumps(expected, ensure_ascii=False))
        print("Moestro: ", json.dumps(got, ensure_ascii=False))


def templates_of(paths):
    for path in paths:
        files = sorted(path.rglob("*.jinja")) if path.is_dir() else [path]
        for file in files:
            with open(file, encoding="utf-8", newline="") as f:
                yield file.stem, f.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", nargs="*", type=pathlib.Path)
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--conversations", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--renderer", default=ROOT / "build" / "dev" / "tests" / "render_lines")
    options = parser.parse_args()

    comparison = Comparison(options.renderer, options.show)
    all_conversations = chat_conversations.Conversations(options.seed)
    conversations = [(number, *all_conversations.conversation(number)) for number in range(options.conversations)]
    cases = [(name, source, conversations) for name, source in templates_of(options.templates)]
    for number in range(options.programs):
        source = chat_programs.program(options.seed, number)
        cases.append((f"program {number}", source, [(number, *chat_programs.CONTEXT)]))
    comparison.compare(cases)
    for error, times in comparison.refusals.most_common():
        print(f"refused {times} times: {error}")
    print(f"{len(cases)} templates, seed {options.seed}: " + ", ".join(f"{n} {word}" for word,
        n in sorted(comparison.verdicts.items())))
    if not comparison.verdicts:
        sys.exit(2)
    sys.exit(1 if comparison.verdicts["different"] else 0)


if __name__ == "__main__":
    main()
