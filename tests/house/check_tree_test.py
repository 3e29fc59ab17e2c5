#!/usr/bin/env python3
"""Every house rule must bite: small trees with one breach each, and one without."""

import pathlib
import tempfile
import unittest

import check_tree


class CheckTree(unittest.TestCase):
    def breaches(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(check_tree.check_tree(root))

    def expect(self, name, text, words):
        found = self.breaches({
            name: text, "common/README.md": "", "store/README.md": "", "services/README.md": "",
            "orchestrator/README.md": ""
        })
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_good_tree(self):
        self.assertEqual(
            self.breaches(
                {"store/README.md": "x", "store/a.h": '#pragma once\n#include "common/x.h"\n#include <vector>\n'}), [])

    def test_include_direction(self):
        self.expect("common/a.cc", '#include "store/x.h"\n', "may include common only")
        self.expect("store/a.cc", '#include "kernels/x.h"\n', "may include common, store only")
        self.expect("orchestrator/a.cc", '#include "services/x.h"\n', "may include")
        self.expect("services/a.cc", '#include "tests/x.h"\n', "may include")

    def test_headers_that_only_name_json(self):
        include = "#include <nlohmann/json.hpp>\n"
        self.expect("common/a.h", "#pragma once\n" + include, "nlohmann/json_fwd.hpp")
        readmes = {"common/README.md": "", "orchestrator/README.md": "", "tests/README.md": ""}
        once = "#pragma once\n"
        fine = {
            "common/a.cc": include, "orchestrator/api/chat_deltas.h": once + include, "tests/c.h": once + include,
            "common/b.h": once + "#include <nlohmann/json_fwd.hpp>\n"
        }
        self.assertEqual(self.breaches({**readmes, **fine}), [])

    def test_folders_that_include_each_other(self):
        readmes = {"store/README.md": "", "common/README.md": ""}
        layers = {"store/a/x.cc": '#include "store/b/y.h"\n#include "store/a/x.h"\n', "store/a/x.h": "#pragma once\n",
                  "store/b/y.h": '#pragma once\n#include "common/c/z.h"\n', "common/c/z.h": "#pragma once\n"}
        self.assertEqual(self.breaches(readmes | layers), [])
        (found,) = self.breaches(readmes | layers | {"store/b/y.cc": '#include "store/a/x.h"\n'})
        self.assertIn("store/a/x.cc includes store/b/y.h; store/b/y.cc includes store/a/x.h", found)
        (found,) = self.breaches(readmes | {
            "store/x.h": '#pragma once\n#include "store/b/y.h"\n',
            "store/b/y.h": '#pragma once\n#include "store/x.h"\n'
        })
        self.assertIn("in a circle", found)

    def test_names_of_neighbours(self):
        readmes = {"store/README.md": "", "common/README.md": ""}
        first = ("namespace {\nconstexpr int kMost = 3;\nusing std::chrono::steady_clock;\nstruct Two {\n};\n"
                 "int twice(int x) {\n  return 2 * x;\n}\n}\n")
        header = "#pragma once\ninline constexpr int kBytes = 4;\n"

        def breaches(text):
            return self.breaches(readmes | {"store/a.cc": first, "store/b.cc": text, "store/bytes.h": header})

        for text, name in ((" f(kMost);", "kMost is that of a.cc"), (" x > kMost);", "kMost"),
                           (" return kMost;", "kMost"), (" steady_clock::now();", "steady_clock"), (" Two two;", "Two"),
                           (" return twice(2);", "twice"), (" f(2 * kBytes);", "kBytes is that of store/bytes.h")):
            (found,) = breaches(text + "\n")
            self.assertIn(name, found)
            self.assertIn("must compile without its neighbours", found)
        for text in ("// kMost\n", 'say("kMost");\n', "constexpr int kMost = 2;\nint x = kMost;\n",
                     "enum class A { kMost };\nf(A::kMost);\n", "int a = 1, twice = 2;\nf(twice);\n",
                     "const auto& [Two, b] = c;\n", "x.twice(1);\nstd::chrono::steady_clock::now();\n",
                     '#include "store/bytes.h"\nf(kBytes);\n', "int f(int twice) { return twice; }\n"):
            self.assertEqual(breaches(text), [], text)

    def test_relative_include(self):
        self.expect("store/a/b.cc", '#include "../x.h"\n', "start at the root")

    def test_third_party_headers_have_one_place(self):
        self.expect("store/a.cc", "#include <zmq.hpp>\n", "common/net/ alone")
        self.expect("services/cli/a.cc", "#include <boost/beast/http.hpp>\n", "orchestrator/http/")
        self.expect("orchestrator/a.cc", "#include <CLI/CLI.hpp>\n", "services/command_line/ alone")
        self.expect("store/a.cc", "#include <yaml-cpp/yaml.h>\n", "yaml_file.cc")

    def test_size_and_guard(self):
        self.expect("store/a.cc", "\n" * 501, "at most 500")
        self.expect("store/a.h", "int x;\n", "#pragma once")

    def test_loops_over_what_is_gone(self):
        self.expect("store/a.cc", 'for (const json& v : history.report()["samples"][0]) use(v);\n', "give the result")
        self.expect("store/a.cc", "for (int s : f(1)[0]) use(s);\n", "give the result")
        self.assertEqual(
            self.breaches({"store/README.md": "", "store/a.cc": "for (int s : report[f(1)]) use(s), g()[0];\n"}), [])

    def test_only_schedules_loop_over_layers(self):
        loop = "  for (size_t l = 0; l < layers_.size(); ++l) {\n    math_.attention(l, x);\n  }\n"
        self.expect("services/worker/cuda/cuda_pass_x.cc", loop, "come from a schedule")
        self.expect("services/worker/cuda/cuda_pass.cc", "for (const Layer& l : layers_)\n  if (l.moe) router(l);\n",
                    "come from a schedule")
        fine = "  for (const Layer& l : layers_)\n    end(l.event);\n  math_.attention(l, x);\n"
        self.assertEqual(self.breaches({"services/README.md": "", "services/worker/cuda/cuda_pass.cc": fine}), [])

    def test_columns(self):
        long = "x" * 121
        self.expect("store/a.cc", f"// {long}\n", "at most 120")
        self.expect("docs/a.md", f"{long}\n", "at most 120")
        self.expect("scripts/a", f"#!/usr/bin/env python3\n# {long}\n", "at most 120")
        self.expect("scripts/a", f"#!/usr/bin/env bash\n# {long}\n", "at most 120")
        self.expect("packaging/debian/a", f"#!/bin/sh\n# {long}\n", "at most 120")
        self.expect("store/a.inc", f"// {long}\n", "store/a.inc:1: 124 columns; at most 120")
        fine = {
            "store/a.cc": f'const char* a = R"x(\n{long}\n)x";\n',
            "docs/a.md": f"| {long} |\nhttps://{long}\n",
            "store/README.md": ""
        }
        self.assertEqual(self.breaches(fine), [])

    def test_long_pages_have_a_table_of_contents(self):
        page = "# A\n\n[B c](#b-c) · [D's](#ds)\n\n## B c\n" + "\n" * 100
        self.assertEqual(self.breaches({"docs/a.md": page + "```sh\n## no heading\n```\n## D's\n"}), [])
        self.assertEqual(self.breaches({"docs/a.md": "# A\n\n## B\n"}), [])
        self.expect("docs/a.md", page + "## E\n", "no link to 'E'")

    def test_getenv(self):
        self.expect("store/a.cc", 'auto x = getenv("X");\n', "getenv")

    def test_leftovers(self):
        self.expect("store/a.cc", "// TODO later\n", "a leftover")

    def test_links(self):
        self.expect("docs/a.md", "[x](nowhere.md)\n", "nowhere.md")
        self.assertEqual(self.breaches({"docs/a.md": "[x](b.md#part) [y](https://h/z) [z](#here)\n", "docs/b.md": ""}),
                         [])

    def test_readmes(self):
        found = self.breaches({"store/part/CMakeLists.txt": "", "store/part/a.cc": "", "store/README.md": ""})
        self.assertEqual(found, ["store/part/: no README.md"])
        found = self.breaches({"store/README.md": "x\n" * 16})
        self.assertIn("at most 15", found[0])


if __name__ == "__main__":
    unittest.main()
