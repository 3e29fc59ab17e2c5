#!/usr/bin/env python3
"""Makes orchestrator/chat/character_data.cc, what Python's str.upper(), isupper() and the like know of characters, and
tests/chat/characters.json, what they and Jinja2's title filter make of every character in several places of a word.
It takes half a minute. Python 3.13 has Unicode 15.1; a Python with another version is refused.

  python3.13 -m venv build/venv-case && build/venv-case/bin/pip install jinja2==3.1.6 xxhash
  build/venv-case/bin/python scripts/make_characters.py
"""

import json
import pathlib
import sys
import unicodedata

import xxhash
from jinja2.filters import do_title

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "orchestrator" / "chat" / "character_data.cc"
CASES = ROOT / "tests" / "chat" / "characters.json"
UNICODE = "15.1.0"
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
STRIDE_MAX = 2
SIGMA, FINAL_SIGMA = "\u03a3", "\u03c2"

# What is before and after each character. A capital sigma is lowered by what is around it, a small letter shows whether
# a title goes on.
PLACES = [("", ""), ("b", "b"), ("", SIGMA), ("b", SIGMA), ("b" + SIGMA, ""), ("b" + SIGMA, "b")]


def runs(steps):
    """Of pairs of a code point and a step to another, in order: the first, last, stride and step of runs."""
    made = []
    for c, step in steps:
        run = made[-1] if made else None
        if run and run[3] == step and c - run[1] == (run[2] if run[1] > run[0] else min(c - run[1], STRIDE_MAX)):
            run[1], run[2] = c, c - run[1]
        else:
            made.append([c, c, 1, step])
    return made


def rows(items):
    """Initializers in braces, over lines of at most 120 columns."""
    lines = ["   "]
    for item in items:
        if len(lines[-1]) + len(item) + 2 > 120:
            lines.append("   ")
        lines[-1] += f" {item},"
    return "\n".join(lines)


def mapping(name, change):
    changed = [(c, change(c)) for c in CHARACTERS if change(c) != c]
    single = rows(f"{{{{0x{first:04X}, 0x{last:04X}, {stride}}}, {step}}}" for first, last, stride, step in runs(
        (ord(c), ord(to) - ord(c)) for c, to in changed if len(to) == 1))
    longer = rows(f"{{0x{ord(c):04X}, {{{', '.join(f'0x{ord(part):04X}' for part in to)}}}}}" for c, to in changed
                  if len(to) > 1)
    return f"""
const CaseRun k{name}Runs[] = {{
{single}
}};
const LongCase k{name}Longer[] = {{
{longer}
}};
constinit const CaseMapping k{name}{{k{name}Runs, k{name}Longer}};
"""


def character_set(name, holds):
    members = rows(f"{{0x{first:04X}, 0x{last:04X}, {stride}}}" for first, last, stride, _ in runs(
        (ord(c), 0) for c in CHARACTERS if holds(c)))
    return f"""
const CharacterRun k{name}Runs[] = {{
{members}
}};
constinit const std::span<const CharacterRun> k{name}{{k{name}Runs}};
"""


def is_cased(c):
    """A letter after a cased character does not begin a word of a title."""
    return (c + "b").title()[-1] == "b"


def is_case_ignorable(c):
    """Looked through on the way from a capital sigma to the letter before it."""
    return (f"b{c}{SIGMA}").lower()[-1] == FINAL_SIGMA and (f"1{c}{SIGMA}").lower()[-1] != FINAL_SIGMA


def tables():
    version = ".".join(map(str, sys.version_info[:2]))
    text = f"""// What Python's str.upper(), isupper() and the like know of characters.
// Made by scripts/make_characters.py, which says how, from Python {version} (Unicode {UNICODE}). Not to be edited.
#include "orchestrator/chat/character_data.h"

// clang-format off
namespace moestro::jinja {{
"""
    text += mapping("ToUpper", str.upper) + mapping("ToLower", str.lower) + mapping("ToTitle", str.title)
    text += character_set("UpperCase", str.isupper) + character_set("LowerCase", str.islower)
    text += character_set("TitleCase", lambda c: is_cased(c) and not c.isupper() and not c.islower())
    text += character_set("CaseIgnorable", is_case_ignorable) + character_set("Digits", str.isdigit)
    OUT.write_text(text + "\n}  // namespace moestro::jinja\n// clang-format on\n", encoding="utf-8")


def cases():
    """One hash for each function and place: XXH64 of what the function makes of all words, each with a space after it.
    capitalize sees the words one by one; so do isupper() and its like, which give 0 or 1 for each."""
    functions = {"upper": str.upper, "lower": str.lower, "title": str.title, "title filter": do_title}
    made = []
    for before, after in PLACES:
        words = [before + c + after + " " for c in CHARACTERS]
        results = {name: function("".join(words)) for name, function in functions.items()}
        results["capitalize"] = "".join(word.capitalize() for word in words)
        for test in (str.isupper, str.islower, str.isdigit, str.isspace) if SIGMA not in before + after else ():
            results[test.__name__] = "".join(str(int(test(word[:-1]))) for word in words)
        for name, result in results.items():
            made.append(dict(function=name, before=before, after=after, hash=xxhash.xxh64_hexdigest(result.encode())))
    CASES.write_text(json.dumps(dict(unicode=UNICODE, cases=made), indent=1) + "\n", encoding="utf-8")


def main():
    if unicodedata.unidata_version != UNICODE:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, not {UNICODE}\n\n{__doc__}")
    tables()
    cases()


if __name__ == "__main__":
    main()
