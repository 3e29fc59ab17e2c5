"""The status page's script without a browser: what it makes of what it is told, in Node.js, over a stand-in for the
document (page_script.mjs). How it looks is page_test.py's."""

import copy
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from fake_server import figures, histogram, on_devices, with_history

HERE = pathlib.Path(__file__).resolve().parent
PAGE = (HERE.parents[1] / "orchestrator" / "page" / "status.html").read_text()
NODE = os.environ.get("MOESTRO_NODE") or shutil.which("node")
EXPERTS = "Recent use of experts, by layer"
CHARTS = 6


def later(told, seconds, **tokens):
    told = copy.deepcopy(told)
    told["uptime_s"] += seconds
    for name, more in tokens.items():
        told["tokens"][name] += more
    return told


def shown(*answers, phone=False):
    job = {"html": PAGE, "phone": phone, "answers": [(200, a) if isinstance(a, dict) else a for a in answers]}
    ran = subprocess.run([NODE, HERE / "page_script.mjs"], input=json.dumps(job), capture_output=True, text=True,
                         timeout=60)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    said = json.loads(ran.stdout)
    said["by_title"] = {card["title"]: card for card in said["cards"]}
    return said


class Script(unittest.TestCase):
    def assert_says(self, page, card, *words):
        for said in words:
            self.assertIn(said, page["by_title"][card]["text"])

    def test_the_map_of_experts_comes_right_after_the_charts(self):
        page = shown(figures())
        self.assertEqual([c["title"] for c in page["cards"]][CHARTS:], [
            EXPERTS, "Memory", "Sequences and requests", "Workers", "Drives", "Batches"])
        self.assertEqual({c["tag"] for c in page["cards"][:CHARTS]}, {"section"})
        self.assertTrue(all(c["open"] for c in page["cards"][CHARTS:]))

    def test_speed_stands_beside_its_forecast(self):
        self.assert_says(shown(figures()), "Workers", "There is no forecast")
        told = figures()
        told["recent"] = {"prompts": {"tokens_per_s": 15800.0, "step_tokens": 4000.0, "stalled": 0.8,
                                      "bound": "experts"}, "decoding": None}
        told["forecast"] = {"schedule": "layerwise", "step_tokens": 4096, "prompt": 512, "generate": 128,
                            "sequences": 12, "prompts": {"tokens_per_s": 16000.0, "bound": "link"},
                            "decoding": {"tokens_per_s": 40.5, "bound": "compute"}}
        self.assert_says(shown(told), "Workers", "15.8 k", "16 k", "80 %", "link", "40.5", "compute",
                         "for 12 sequences at once, of 512 + 128 tokens, with layerwise and steps of up to 4,096")

    def test_dense_weights_that_take_turns_are_told_of(self):
        self.assertNotIn("ense weights", shown(figures())["by_title"]["Memory"]["text"])
        told = figures()
        told["store"]["models"][0].update(streamed_layers=10, streamed_bytes=20 << 20)
        told["steps"].update(dense_read_bytes=1 << 30, dense_stall_seconds=1.0)
        after = later(told, 10)
        after["steps"].update(seconds=told["steps"]["seconds"] + 8, dense_stall_seconds=3.0)
        self.assert_says(shown(told, after), "Memory", "Dense weights of demo", "6 of 16 layers in DRAM",
                         "each step reads 20 MiB", "Stalled for dense weights, just now", "25 %")

    def test_rows_of_the_map_have_the_numbers_of_their_layers(self):
        self.assertEqual(shown(figures())["by_title"][EXPERTS]["labels"], [["0", "25%"], ["1", "75%"]])
        told = figures()
        told["experts"] = {"layers": 94, "experts": 2, "half_life_s": 60, "shares": [[0.5, 0.5]] * 94}
        labels = shown(told)["by_title"][EXPERTS]["labels"]
        self.assertEqual([int(number) for number, _ in labels], list(range(0, 94, 4)), "as many as there is room for")
        self.assertAlmostEqual(float(labels[1][1].rstrip("%")), 100 * 4.5 / 94)
        self.assertEqual([int(number) for number, _ in shown(told, phone=True)["by_title"][EXPERTS]["labels"]],
                         list(range(0, 94, 8)))

    def test_the_charts_begin_with_the_history_that_the_server_kept(self):
        told = figures()
        page = shown(with_history(told, 299, 25))
        self.assertEqual(page["asked"], ["v1/moestro/status?experts=1&history=1"])
        self.assert_says(page, "Tokens per second", "written 25", "4 min ago")
        self.assertGreaterEqual(page["by_title"]["Tokens per second"]["lines"][1], 297)

    def test_what_was_heard_goes_on_from_the_history(self):
        told = with_history(figures(), 60, 25)
        page = shown(told, *(later(told, k, generated=100 * k) for k in range(1, 4)))
        self.assertEqual(page["asked"][1:], ["v1/moestro/status"] * 3, "the history is asked for once")
        self.assert_says(page, "Tokens per second", "written 100", "1 min ago")
        self.assertEqual(page["by_title"]["Tokens per second"]["lines"][1], 62)

    def test_a_sample_of_just_now_makes_no_rate(self):
        told = with_history(later(figures(), 0.1, generated=1000), 60, 25)
        told["history"]["samples"].append(told["history"]["samples"][-1].copy())
        told["history"]["samples"][-1][0] = told["uptime_s"] - 0.01
        self.assert_says(shown(told), "Tokens per second", "written 25")

    def test_after_a_longer_silence_it_asks_for_the_history_again(self):
        down = (503, {"error": {"message": "no"}})
        page = shown(figures(), down, down, down, down, later(figures(), 30))
        self.assertEqual(page["asked"][-1], "v1/moestro/status?experts=1&history=1")
        self.assertNotIn("history", page["asked"][1])

    def test_latencies_of_the_history_are_those_of_its_last_half_minute(self):
        told = figures()
        told["latency"]["tpot_s"] = histogram(98, 0, 2, 0)
        kept = with_history(told, 60, 0)
        for sample in kept["history"]["samples"]:
            sample[kept["history"]["members"].index("latency.tpot_s.counts")] = [0, 0, 0, 0]
        self.assert_says(shown(kept), "Time per output token", "median 5.1 ms", "99 of 100 within 550 ms")

    def test_one_is_not_said_as_many(self):
        one = on_devices()
        one["requests"]["running"] = one["kv_blocks"]["used"] = 1
        one["sequences"].update(waiting=1, preemptions=1, quarantined=1)
        one["tiers"]["dram"].update(evictions=1, late=1)
        one["tiers"]["device"].update(experts=1, late=1, evictions=1, host_experts=1, host_rows=1, rewinds=1)
        one["tiers"]["device"]["recent"]["uses"] = 1
        one["batches"]["under_way"][0].update(total=1, completed=0, failed=0)
        one["experts"] = {"layers": 1, "experts": 1, "half_life_s": 60, "shares": [[1]]}
        page = shown(one)
        self.assert_says(page, "Sequences and requests", "1 request is under way", "1 was sent back",
                         "1 killed its workers and was given up")
        self.assert_says(page, "Memory", "1 block held", "1 expert gave way; 1 was wanted while it was being read")
        self.assert_says(page, "Devices with a memory of their own", "1 of 64 holds an expert", "Of the last 1 use,",
                         "1 was wanted while on its way", "1 expert (1 row)", "1 layer was queued ahead of its routes")
        self.assert_says(page, "Batches", "0 of 1 line")
        self.assertIn("Use of 1 expert in each of 1 layer.", page["by_title"][EXPERTS]["spoken"][0])
        words = " ".join(c["text"] for c in page["cards"][CHARTS:])
        self.assertIsNone(
            re.search(r"(?<![\d.,])1 (requests|sequences|experts|layers|blocks|lines|rows|uses|were)\b", words))

    def test_many_are_said_as_many(self):
        page = shown(on_devices())
        self.assert_says(page, "Sequences and requests", "3 requests are under way", "room for 4,096 sequences",
                         "9 were sent back", "1 killed its workers")
        self.assert_says(page, "Memory", "10 blocks held", "17 experts gave way; 6 were wanted while they were being")
        self.assert_says(page, "Batches", "50 of 200 lines, 2 failed")
        self.assert_says(page, "Devices with a memory of their own", "48 of 64 hold an expert",
                         "7 layers were queued ahead of their routes")

    def test_on_a_phone_all_but_the_map_begin_closed_and_say_the_most_important(self):
        page = shown(figures(), phone=True)
        self.assertEqual([c["title"] for c in page["cards"][CHARTS:] if c["open"]], [EXPERTS])
        self.assertEqual([c["text"] for c in page["cards"][CHARTS + 1:]], [
            "Memory weights 50 %, KV cache 10 %", "Sequences and requests 3 requests, 5 waiting",
            "Workers 1 busy, 1 idle", "Drives –", "Batches 1 under way"])

    def test_a_wrong_answer_is_said(self):
        page = shown((500, {"error": {"message": "out of paper"}}))
        self.assertEqual(page["state"], "In trouble")
        self.assertEqual(page["notices"], ["The server answered 500: out of paper. "])


class Markup(unittest.TestCase):
    def test_nothing_is_left_open_and_every_input_has_its_label(self):
        """As a strict reader sees it: every element that is opened is closed, in order."""
        void, open_tags, ids, labels, inputs = {"meta", "link", "input", "br"}, [], set(), set(), set()

        class Reader(html.parser.HTMLParser):
            def handle_starttag(self, tag, attributes):
                found = dict(attributes)
                ids.add(found.get("id"))
                labels.add(found.get("for"))
                if tag == "input":
                    inputs.add(found["id"])
                if tag not in void:
                    open_tags.append(tag)

            def handle_endtag(self, tag):
                assert open_tags.pop() == tag, (tag, self.getpos())
        Reader().feed(PAGE)
        self.assertEqual(open_tags, [])
        self.assertLessEqual(inputs, labels)
        for used in re.findall(r'\$\("([\w-]+)"\)', PAGE):
            self.assertIn(used, ids)

    def test_colours_are_told_apart_by_day_and_by_night(self):
        """Contrast of the words' colours with what lies behind them: 4.5 at least (WCAG AA)."""
        def light(colour):
            parts = [int(colour[k:k + 2], 16) / 255 for k in (1, 3, 5)]
            parts = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
            return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), parts))
        themes = re.findall(r":root \{(.*?)\}", PAGE, re.DOTALL)
        self.assertEqual(len(themes), 2)
        for theme in themes:
            colours = dict(re.findall(r"--([\w-]+): (#[\da-f]{6})", theme))
            pairs = [(word, back) for word in ("text", "quiet", "good", "warn", "bad") for back in ("card", "page")]
            pairs += [("text", "bad-back"), ("text", "warn-back"), ("quiet", "bad-back"), ("quiet", "warn-back")]
            for word, back in pairs:
                a, b = sorted((light(colours[word]), light(colours[back])), reverse=True)
                self.assertGreaterEqual((a + 0.05) / (b + 0.05), 4.5, (word, back))


if __name__ == "__main__":
    if NODE is None:
        print("there is no Node.js here (package nodejs)")
        sys.exit(77)
    unittest.main()
