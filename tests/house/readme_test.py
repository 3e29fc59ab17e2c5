#!/usr/bin/env python3
"""The README's commands can be run one after the other: no two make a pack in the same place, because `moestro pack`
refuses a directory that holds one."""

import collections
import pathlib
import re
import unittest

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
MAKES_A_PACK = re.compile(r"\bmoestro (?:pack|bench model)\b[^\n]*? -o (\S+)")


class Readme(unittest.TestCase):
    def test_no_two_packs_in_one_place(self):
        places = collections.Counter(MAKES_A_PACK.findall(README.read_text()))
        self.assertGreaterEqual(len(places), 4)
        self.assertEqual({place for place, count in places.items() if count > 1}, set())


if __name__ == "__main__":
    unittest.main()
