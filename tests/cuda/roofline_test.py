"""Estimates of scripts/roofline: bytes and operations are those of docs/perf/gpu.md, and better structure is never
estimated to be slower."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("roofline", str(ROOT / "scripts" / "roofline"))
roofline = importlib.util.module_from_spec(importlib.util.spec_from_loader("roofline", loader))
sys.dont_write_bytecode = True
loader.exec_module(roofline)

STREAM = dict(occupancy=0.5, loop_issued=300, loop_flops=0, loop_bytes=4096, loop_waits=2, depth=0, mma=0)
TILES = dict(occupancy=0.25, loop_issued=256, loop_flops=64 * 4096, loop_bytes=4096, loop_waits=0, depth=3, mma=64)


class Roofline(unittest.TestCase):
    def test_work_is_that_of_the_page(self):
        page = (ROOT / "docs" / "perf" / "gpu.md").read_text()
        for what, which, text in (("few", 0, "two experts on one token, 705 MB"), ("attention", 0, "attention, 268 MB"),
                                  ("many", 1, "experts on 4,096 tokens, 2.89 TFLOP"),
                                  ("decode", 0, "mixtral-12gb resident, 3.29 GB a token")):
            self.assertIn(text, page)
            number, unit = text.split(", ")[-1].split(" ")[:2]
            scale = {"MB": 1e6, "GB": 1e9, "TFLOP": 1e12}[unit]
            self.assertAlmostEqual(roofline.work(what)[which] / scale, float(number), delta=float(number) * 0.005)

    def test_no_estimate_is_above_what_the_card_has(self):
        endless = dict(STREAM, loop_issued=1, loop_bytes=1 << 30, loop_waits=1, occupancy=1.0)
        for card, (_, _, _, memory, peak) in roofline.CARDS.items():
            self.assertEqual(roofline.kernel_rates(endless, card)[0], memory * 1e9 * roofline.MEMORY_SHARE)
            self.assertLessEqual(roofline.kernel_rates(dict(TILES, loop_issued=1, depth=99), card)[1], peak * 1e12)
            self.assertLess(roofline.share("few", roofline.seconds("few", [endless], card, 19), card), 1)

    def test_better_structure_is_faster(self):
        for worse in (dict(loop_waits=32), dict(occupancy=0.02), dict(loop_issued=30000)):
            self.assertLess(roofline.kernel_rates({**STREAM, **worse}, "H100 SXM")[0],
                            roofline.kernel_rates(STREAM, "H100 SXM")[0], worse)
        for worse in (dict(loop_issued=2560), dict(depth=0, loop_waits=26), dict(occupancy=0.02)):
            self.assertLess(roofline.kernel_rates({**TILES, **worse}, "H100 SXM")[1],
                            roofline.kernel_rates(TILES, "H100 SXM")[1], worse)
        wide = dict(TILES, loop_flops=16 * 64 * 256 * 16 * 2 // 4, mma=16 // 16)
        self.assertGreater(roofline.kernel_rates(wide, "H100 SXM")[1], roofline.kernel_rates(TILES, "H100 SXM")[1])

    def test_launches_cost_time(self):
        fewer, more = (roofline.seconds("decode", [STREAM], "H100 SXM", n) for n in (8, 19))
        self.assertAlmostEqual(more - fewer, 16 * 11 * roofline.LAUNCH_S)

    def test_every_row_has_an_estimate_of_each_card(self):
        archs = {c[0] for c in roofline.CARDS.values()}
        roles = {role: {arch: [figures] for arch in archs}
                 for role, figures in (("few", STREAM), ("attention", STREAM), ("many", TILES))}
        lines = list(roofline.table(roles, 19))
        self.assertEqual(len(lines), 6)
        self.assertTrue(all(line.count("|") == 7 for line in lines))
        self.assertNotIn("no such kernel", "".join(lines))
        self.assertIn("no such kernel", "".join(roofline.table({}, 19)))

    def test_roles_are_those_of_the_file(self):
        expected = {"a": {"role": "few"}, "b": {"role": "few"}, "c": {}}
        measured = {name: {"sm_90": {"name": name}} for name in expected}
        self.assertEqual(roofline.roles_of(expected, measured), {"few": {"sm_90": [{"name": "a"}, {"name": "b"}]}})


if __name__ == "__main__":
    unittest.main(verbosity=2)
