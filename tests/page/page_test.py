"""The status page in a headless Chromium: figures of a real cluster, and of a stand-in that says whatever a test wants
said."""

import hashlib
import http.client
import os
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import browser  # noqa: E402
import cluster  # noqa: E402
from cluster import Cluster, DemoTest  # noqa: E402
from fake_server import FakeServer, figures, histogram, on_devices, with_history, worker  # noqa: E402

SHOTS = pathlib.Path(os.environ.get("MOESTRO_BIN_DIR", ".")).parent / "page"
KEY = "a secret of ours"
NAMED = "[...document.querySelectorAll('.figure')].find((f) => " \
    "f.closest('.card').querySelector('h2').textContent === {0!r} && f.querySelector('dt').textContent === {1!r})" \
        ".querySelector('dd').textContent"
CARD = "[...document.querySelectorAll('.card')].find((c) => c.querySelector('h2')?.textContent === {0!r})"
BOARD = CARD + ".querySelector('.board')"
SAID = CARD + ".querySelector('.note').textContent"
DEVICES, BY_LAYER, EXPERTS = ("Devices with a memory of their own", "Experts that were on the device, by layer",
                              "Recent use of experts, by layer")


def figure(card, name):
    return NAMED.format(card, name)


class PageTest(DemoTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        SHOTS.mkdir(exist_ok=True)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def assert_fits(self, page):
        self.assertLessEqual(page.eval("document.scrollingElement.scrollWidth"), page.eval("innerWidth"),
                             "the page is wider than its window")

    def unfold(self, page):
        page.eval("document.querySelectorAll('details').forEach((d) => { d.open = true; })")

    def assert_readable(self, page):
        """Contrast of every text with what lies behind it: 4.5 at least (WCAG AA)."""
        poor = page.eval("""(() => {
            const numbers = (c) => c.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
                .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const behind = (e) => {
                for (; e; e = e.parentElement) {
                    const c = numbers(getComputedStyle(e).backgroundColor);
                    if (c[3] !== 0) return c;
                }
                return [255, 255, 255];
            };
            return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility()
                && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
                .map((e) => {
                    const lights = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
                    const [a, b] = lights.sort((x, y) => y - x);
                    return [(a + 0.05) / (b + 0.05), e.textContent];
                })
                .filter(([ratio]) => ratio < 4.5);
        })()""")
        self.assertEqual(poor, [])


class Live(PageTest):
    """A demo cluster at work."""

    def test_shows_the_figures_of_a_running_cluster(self):
        with Cluster(self.pack, "--workers", "2") as served:
            over = threading.Event()

            def work():
                while not over.is_set():
                    served.complete("Once upon a time", max_tokens=48, ignore_eos=True)
            hands = [threading.Thread(target=work) for _ in range(3)]
            for hand in hands:
                hand.start()
            try:
                wide = self.browser.open(served.url)
                wide.wait("parseFloat(" + figure("Tokens per second", "written") + ") > 0", 60)
                wide.wait(
                    "parseFloat(" + figure("Time to the first token", "median") + ") > 0 && parseFloat(" +
                    figure("Time per output token", "median") + ") > 0", 60)
                wide.wait("document.querySelectorAll('.plot path.one')[0].getAttribute('d').split('L').length > 8", 60)
                self.assertEqual(wide.text("#state-text"), "Serving")
                self.assertEqual(wide.text("#model"), self.pack.name)
                self.assertEqual(
                    sorted(
                        wide.eval(
                            "[...document.querySelectorAll('table[aria-label=Workers] tbody td:first-child')].map((c) "
                            "=> c.textContent)"
                        )), ["worker-0", "worker-1"])
                status = served.request("GET", "/v1/moestro/status")[1]
                self.assertIn(f"of {status['kv_blocks']['total']:,}", wide.text("main"))
                self.assertIn(status["store"]["drives"][0]["path"], wide.text("main"))
                wide.wait(
                    CARD.format(EXPERTS) + ".querySelector('.note').textContent.startsWith('Most used: expert ')", 60)
                used = served.request("GET", "/v1/moestro/status?experts=1")[1]["experts"]
                self.assertEqual(
                    wide.eval("[document.querySelector('canvas').width, document.querySelector('canvas').height]"),
                    [used["experts"], used["layers"]])
                self.assertTrue(wide.eval(CARD.format(DEVICES) + ".hidden"), "CPUs have none")
                narrow = self.browser.open(served.url, 360, 780, phone=True)
                dark = self.browser.open(served.url, dark=True)
                for page, name in ((wide, "wide"), (narrow, "narrow"), (dark, "dark")):
                    page.wait("document.querySelectorAll('.plot path.one')[0].getAttribute('d').split('L').length > 3",
                              60)
                    self.assert_fits(page)
                    self.assert_readable(page)
                    page.screenshot(SHOTS / f"{name}.png")
                    self.unfold(page)
                    self.assert_fits(page)
                    self.assert_readable(page)
                    self.assertEqual(page.errors, [], name)
                self.assertNotEqual(
                    *(page.eval("getComputedStyle(document.body).backgroundColor") for page in (wide, dark)))
            finally:
                over.set()
                for hand in hands:
                    hand.join()
            wide.wait(figure("Requests and sequences", "requests under way") + " === '0'")
            ok = served.request("GET", "/v1/moestro/status")[1]["requests"]["ended"]["ok"]
            wide.wait(
                f"document.querySelector('table[aria-label=\"Requests by result\"] "
                f"tbody').textContent.startsWith('answered{ok:,}')"
            )

    def test_shows_a_device_at_work(self):
        expert, _ = cluster.expert_and_dense_bytes(self.pack)
        with Cluster(self.pack, "--device", f"emulated:vram={12 * expert},link=1GB/s", "--predict", "auto") as served:
            page = self.browser.open(served.url)
            self.addCleanup(page.close)
            served.complete("Once upon a time", max_tokens=64, ignore_eos=True)
            device = CARD.format(DEVICES)
            page.wait(
                f"!{device}.hidden && / [1-9][0-9]* of 12 hold an expert/.test(' ' + "
                f"{device}.querySelector('.what').lastChild.textContent)"
            )
            d = served.request("GET", "/v1/moestro/status")[1]["tiers"]["device"]
            self.assertGreater(d["hits"], 0)
            layers = CARD.format(BY_LAYER)
            page.wait(f"{layers}.querySelectorAll('rect').length === {len(d['layers']['hits'])}")
            self.assert_fits(page)
            self.assert_readable(page)
            page.screenshot(SHOTS / "device.png")
            self.assertEqual(page.errors, [])

    def test_asks_for_the_key_and_keeps_it_in_the_tab(self):
        keys = pathlib.Path(self.dir.name) / "keys"
        keys.write_text(f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()} ann\n")
        keys.chmod(0o600)
        with Cluster(self.pack, "--api-keys", keys) as served:
            page = self.browser.open(served.url)
            page.wait("!document.querySelector('#key-form').hidden")
            self.assertEqual(page.text("#state-text"), "API key needed")
            self.assertTrue(
                page.eval(
                    "document.querySelector('main').hidden && document.activeElement === document.querySelector('#key')"
                ))
            page.screenshot(SHOTS / "key.png")
            enter = "document.querySelector('#key').value = {!r}; document.querySelector('#key-form').requestSubmit()"
            page.eval(enter.format("another"))
            page.wait("document.querySelector('#notices').textContent.includes('does not know this key')")
            self.assertEqual(page.eval("sessionStorage.length"), 0)
            page.eval(enter.format(KEY))
            page.wait(
                "document.querySelector('#state-text').textContent === 'Serving' && "
                "document.querySelector('#key-form').hidden && !document.querySelector('main').hidden"
            )
            self.assertEqual(
                page.eval(
                    "[sessionStorage.length, localStorage.length, document.cookie, "
                    "document.querySelector('#key').value]"
                ), [1, 0, "", ""])
            self.assertEqual([e for e in page.errors if "401" not in e], [])
            page.call("Page.reload")
            page.wait("document.querySelector('#state-text').textContent === 'Serving'")
            another = self.browser.open(served.url)
            another.wait("!document.querySelector('#key-form').hidden")


class Told(PageTest):
    """What the page makes of what it is told."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with Cluster(cls.pack) as served:
            connection = http.client.HTTPConnection(served.host, served.port, timeout=30)
            connection.request("GET", "/")
            answer = connection.getresponse()
            cls.html, cls.headers = answer.read(), {
                name: answer.headers[name]
                for name in ("Content-Type", "Content-Security-Policy", "X-Content-Type-Options")
            }
            connection.close()

    def setUp(self):
        self.server = FakeServer(self.html, self.headers)
        self.server.__enter__()
        self.addCleanup(self.server.__exit__)

    def open(self, **window):
        page = self.browser.open(self.server.url, **window)
        self.addCleanup(page.close)
        page.wait("document.querySelector('#state-text').textContent !== 'Connecting'")
        return page

    def tell(self, page, told, condition):
        self.server.answer = (200, told)
        page.wait(condition)

    def test_rates_are_what_lies_between_two_answers(self):
        page = self.open()
        self.assertEqual(page.eval(figure("Tokens per second", "written")), "–")
        later = figures()
        later["uptime_s"] += 2
        later["tokens"].update(generated=2246, prompt=1050)
        later["tiers"]["dram"].update(hits=1080, misses=120)
        later["store"]["read_bytes"] += 64 << 20
        later["store"]["drives"][0]["read_bytes"] += 64 << 20
        later["latency"]["ttft_s"] = histogram(0, 10, 0, 0)
        later["latency"]["tpot_s"] = histogram(98, 0, 2, 0)
        later["workers"][0].update(plans=150, step_seconds=3.0, stall_seconds=0.75)
        self.tell(page, later, figure("Tokens per second", "written") + " === '123'")
        shown = {
            (c, n): page.eval(figure(c, n))
            for c, n in [("Tokens per second", "read"), (
                "Experts that were in memory",
                "just now"), ("Experts that were in memory", "since the start"), (
                    "Read from the drives",
                    "per second"), ("Time to the first token",
                                    "median"), ("Time per output token",
                                                "median"), ("Time per output token", "99 of 100 within")]
        }
        self.assertEqual(list(shown.values()), ["25", "90 %", "90 %", "32 MiB/s", "55 ms", "5.1 ms", "550 ms"])
        self.assertRegex(page.text("table[aria-label=Workers]"),
                         r"worker-0\s+busy\s+cpu\s+demo\s+25 ms\s+20 ms\s+25\s+25 %\s+90 %\s+now")
        self.assertRegex(page.text("table[aria-label=Drives]"), r"/packs\s+32 MiB/s\s+25 %\s+5\.06 GiB\s+2")
        self.assertRegex(page.text("table[aria-label='Requests by result']"),
                         r"answered\s+7\s+0\s+failed\s+1\s+0\s+left by their client\s+2\s+0\s+refused\s+4\s+0")
        self.assertRegex(page.text("table[aria-label=Sequences]"),
                         r"at workers\s+4\s+waiting, interactive\s+2\s+waiting, of batches\s+3")
        main = page.text("main")
        for words in (
                "2 GiB there of 4 GiB", "48 of 64 in DRAM", "10 blocks held, 20 kept for reuse, of 100",
                "17 experts gave way; 6 were wanted while they were being read",
                "Read ahead: 50, of them 40 used and 3 evicted unused; 3 MiB read for nothing",
                "in progress: 50 of 200 lines, 2 failed",
                "3 requests are under way. There is room for 4,096 sequences; more are refused. 9 were sent back to "
                "make room for others, 1 killed"
        ):
            self.assertIn(words, main)
        self.assertIn("123", page.eval("document.querySelector('.plot svg').getAttribute('aria-label')"))
        self.assertEqual(page.errors, [])

    def pixels(self, page):
        """The heat map's cells as [red, green, blue], row by row."""
        return page.eval(
            "(() => { const c = document.querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, "
            "c.height).data;"
            " return Array.from({length: c.width * c.height}, (_, i) => [...d.slice(4 * i, 4 * i + 3)]); })()")

    def press(self, page, key):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def test_a_heat_map_shows_which_experts_are_used(self):
        page = self.open()
        page.wait(SAID.format(EXPERTS) + " !== ''")
        self.assertEqual(
            page.eval(SAID.format(EXPERTS)),
            "Most used: expert 2 of layer 1, 100 % of its layer's uses; an even share is 25 %. Uses 1 min ago count "
            "half."
        )
        self.assertEqual(page.eval("[document.querySelector('canvas').width, document.querySelector('canvas').height]"),
                         [4, 2])

        def light(cell):
            return 0.2126 * cell[0] + 0.7152 * cell[1] + 0.0722 * cell[2]
        for dark in (False, True):
            page.call("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
            unused = page.eval("getComputedStyle(document.documentElement).getPropertyValue('--heat-0').trim()")
            self.assertEqual(unused, "#20262d" if dark else "#eef1f4")
            page.wait(
                "[...document.querySelector('canvas').getContext('2d').getImageData(0, 1, 1, 1).data].slice(0, "
                "3).map((n) => n.toString(16).padStart(2, '0')).join('')"
                f" === '{unused[1:]}'")
            cells = self.pixels(page)
            self.assertEqual("#" + bytes(cells[4]).hex(), unused, "what is not used has the card's own shade")
            rising = [light(cells[k]) for k in (4, 0, 2, 1, 6)]  # shares 0, 0.1, 0.25, 0.4, 1
            self.assertEqual(rising, sorted(rising, reverse=not dark),
                             "the more it is used, the farther its lightness from the card's")
            self.assertGreater(min(abs(a - b) for a, b in zip(rising, rising[1:])), 10,
                               "shares that differ look different")
            self.assertEqual(cells[2], cells[3])

    def test_the_heat_map_is_read_with_pointer_and_keys(self):
        page = self.open()
        page.wait(SAID.format(EXPERTS) + " !== ''")
        self.assertIn("4 experts in each of 2 layers", page.eval(BOARD.format(EXPERTS) + ".getAttribute('aria-label')"))
        box = page.eval("(({left, top, width, height}) => [left, top, width, height])((" + BOARD.format(EXPERTS) +
                        ".scrollIntoView({block: 'center'}), " + BOARD.format(EXPERTS) + ".getBoundingClientRect()))")
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] * 0.375, y=box[1] + box[3] * 0.25)
        page.wait(
            SAID.format(EXPERTS) + ' === "Layer 0, expert 1: 40 % of the layer\'s uses, 1.6 times the even share."')
        self.assertFalse(page.eval(BOARD.format(EXPERTS) + ".querySelector('.pick').hidden"))
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        page.wait(SAID.format(EXPERTS) + ".startsWith('Most used')")
        page.eval(BOARD.format(EXPERTS) + ".focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):  # the first goes to the corner
            self.press(page, key)
        page.wait(
            SAID.format(EXPERTS) + ' === "Layer 1, expert 2: 100 % of the layer\'s uses, 4 times the even share."')
        self.assertEqual(page.eval(CARD.format(EXPERTS) + ".querySelector('.note').getAttribute('aria-live')"),
                         "polite")
        for _ in range(9):  # the edge holds
            self.press(page, "ArrowRight")
        page.wait(SAID.format(EXPERTS) + ".startsWith('Layer 1, expert 3: 0 %')")
        self.press(page, "Escape")
        page.wait(SAID.format(EXPERTS) + ".startsWith('Most used')")
        self.assertEqual(page.errors, [])

    def test_without_experts_there_is_no_map(self):
        told = figures()
        told["experts"] = {"layers": 0, "experts": 0, "half_life_s": 60, "shares": []}
        self.server.answer = (200, told)
        page = self.open()
        self.assertTrue(page.eval(CARD.format(EXPERTS) + ".hidden"))
        self.assertEqual(page.errors, [])

    def test_devices_have_their_cards_where_there_are_some(self):
        page = self.open()
        self.assertTrue(
            page.eval(
                f"{CARD.format(DEVICES)}.hidden && {CARD.format(BY_LAYER)}.hidden && "
                f"{figure('Experts that were in memory', 'on devices, just now')} === '–'"
            ))
        self.assertNotIn("on devices", page.text("main"))
        told = on_devices()
        told["uptime_s"] += 1
        self.tell(page, told, f"!{CARD.format(DEVICES)}.hidden")
        later = on_devices()
        later["uptime_s"] += 3
        later["tiers"]["device"].update(hits=980, misses=320, link_busy_seconds=11.0, step_seconds=44.0,
                                        stall_seconds=9.0)
        self.tell(page, later, figure("Experts that were in memory", "on devices, just now") + " === '80 %'")
        words = page.text("main")
        for said in (
                "48 of 64 hold an expert, 3 GiB of 4 GiB", "Of the last 4,096 uses, there\n84 %",
                "On demand with LRU, there would have been\n71 %", "With Belady's oracle, which knows the future\n88 %",
                "Link busy, just now\n25 %", "Stalled for experts, just now\n25 %",
                "Brought ahead: 50, of them 40 used and 3 (3 MiB) evicted unused. 44 were wanted while on "
                "their way; 99 gave way. Links have carried 5 GiB. CPUs have computed 1,200 experts (1,800 rows) "
                "instead of waiting for the link. 7 layers were queued ahead of their routes and had to be queued "
                "again."
        ):
            self.assertIn(said, words)
        self.assertEqual(page.eval(SAID.format(BY_LAYER)), "Since the start; between 60 % and 86 %.")
        page.eval(BOARD.format(BY_LAYER) + ".focus()")
        self.press(page, "ArrowRight")
        page.wait(
            SAID.format(BY_LAYER) +
            " === 'Layer 0: 86 % of 700 were there, 40 on their way; brought ahead 30, used 25, evicted unused 2.'")
        self.assertEqual(page.eval(CARD.format(BY_LAYER) + ".querySelectorAll('rect').length"), 2)
        self.assert_fits(page)
        self.assert_readable(page)
        page.screenshot(SHOTS / "devices.png")
        self.tell(page, {**figures(), "uptime_s": 110.0}, f"{CARD.format(DEVICES)}.hidden")
        self.assertEqual(page.errors, [])

    def test_a_window_that_is_not_there_yet_is_not_shown(self):
        told = on_devices()
        told["tiers"]["device"].update(recent=None, prefetched=0)
        told["tiers"]["device"]["layers"].update(hits=[0, 0], misses=[0, 0])
        self.server.answer = (200, told)
        page = self.open(width=360)
        page.wait(f"!{CARD.format(DEVICES)}.hidden")
        self.unfold(page)
        words = page.text("main")
        self.assertIn("Nothing was brought ahead.", words)
        self.assertIn("nothing was wanted yet", words)
        self.assertNotIn("Belady", words)
        self.assert_fits(page)
        self.assertEqual(page.errors, [])

    def test_a_server_started_anew_begins_a_new_history(self):
        page = self.open()
        later = figures()
        later.update(uptime_s=104.0)
        later["tokens"]["generated"] = 2400
        self.tell(page, later, figure("Tokens per second", "written") + " === '100'")
        anew = figures()
        anew.update(uptime_s=1.0)
        anew["tokens"]["generated"] = 0
        self.tell(page, anew, figure("Tokens per second", "written") + " === '–'")
        self.assertEqual(page.text("#age"), "up 1 s")

    def test_a_reload_keeps_the_last_five_minutes(self):
        self.server.answer = (200, with_history(figures(), 90, 25))
        page = self.open()
        for _ in range(2):
            page.wait(figure("Tokens per second", "written") + " === '25'")
            self.assertGreaterEqual(page.eval("heard.length"), 91)
            self.assertGreater(
                page.eval("document.querySelectorAll('.plot path.one')[0].getAttribute('d').split('L').length"), 80)
            page.loaded.clear()
            page.call("Page.reload")
            self.assertTrue(page.loaded.wait(30))
        self.assertEqual(page.errors, [])

    def test_on_a_phone_the_lower_parts_begin_closed(self):
        page, wide = self.open(width=360, height=780, phone=True), self.open()
        page.wait(SAID.format(EXPERTS) + " !== ''")
        self.assertTrue(wide.eval("[...document.querySelectorAll('details')].every((d) => d.open)"))
        closed = page.eval(
            "[...document.querySelectorAll('details:not([hidden]):not([open])')].map((d) => d.innerText.trim())")
        self.assertEqual(len(closed), 5)
        self.assertRegex(closed[0], r"^Memory\s+weights 50 %, KV cache 10 %$")
        self.assertLess(page.eval("document.scrollingElement.scrollHeight"), 1800)
        tops = page.eval("charts.map((c) => Math.round(c.card.getBoundingClientRect().top))")
        self.assertEqual(tops[0::2], tops[1::2], "charts stand in two columns")
        self.assert_fits(page)
        page.screenshot(SHOTS / "phone.png")

    def test_says_what_is_wrong_and_what_to_do(self):
        told = figures()
        told["problems"] = [{"severity": "error", "what": "The store does not answer.", "do": "Read its log."},
                            {"severity": "warning", "what": "Worker w is silent.", "do": "Look."}]
        told["workers"][1] = worker("w", state="silent", last_heard_s=7.2)
        told["store"] = None
        self.server.answer = (200, told)
        page = self.open()
        self.assertEqual(page.text("#state-text"), "Serving, in trouble")
        self.assertEqual(
            page.eval("[...document.querySelectorAll('.notice')].map((n) => n.className + ': ' + n.textContent)"),
            ["notice bad: The store does not answer. Read its log.", "notice warn: Worker w is silent. Look."])
        self.assertIn("7.2 s ago", page.text("table[aria-label=Workers]"))
        self.assertEqual(page.eval("document.querySelector('#notices').getAttribute('role')"), "status")
        self.assert_readable(page)
        page.screenshot(SHOTS / "trouble.png")
        told = figures()
        told.update(state="no_worker", workers=[],
                    problems=[{"severity": "error", "what": "No worker is there.", "do": ""}])
        self.tell(page, told, "document.querySelector('#state-text').textContent === 'No worker'")
        self.tell(
            page, figures(),
            "document.querySelector('#state-text').textContent === 'Serving' && "
            "document.querySelector('#notices').children.length === 0"
        )
        self.assertEqual(page.errors, [])

    def test_says_when_the_server_is_gone_and_when_it_is_back(self):
        page = self.open()
        self.server.close_port()
        page.wait("document.querySelector('#state-text').textContent === 'No answer'")
        self.assertRegex(page.text("#notices"), r"does not answer: it is down.* The figures below are of \d")
        self.assertTrue(page.eval("document.querySelector('main').className === 'stale'"))
        self.assertIn("No answer", page.eval("document.title"))
        page.screenshot(SHOTS / "gone.png")
        self.server.open_port()
        page.wait(
            "document.querySelector('#state-text').textContent === 'Serving' && "
            "document.querySelector('main').className === ''"
        )
        self.server.answer = (503, {"error": {"message": "too many connections (4096)"}})
        page.wait(
            "document.querySelector('#notices').textContent.includes('The server answered 503: too many connections "
            "(4096).')"
        )

    def test_names_stay_text(self):
        evil = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"
        told = figures()
        told.update(model=evil, problems=[{"severity": evil, "what": evil, "do": evil}])
        told["workers"][0].update(name=evil, device=evil, model=evil, state=evil)
        told["store"]["drives"][0]["path"] = told["store"]["models"][0]["name"] = told["store"]["policy"] = evil
        told["batches"]["under_way"][0].update(id=evil, status=evil)
        self.server.answer = (200, told)
        page = self.open(width=360)
        page.wait("!document.querySelector('main').hidden")
        self.unfold(page)
        self.assertGreaterEqual(page.text("body").count("<img src=x"), 10)
        self.assertIsNone(page.eval("window.hit"))
        self.assertEqual(page.eval("document.querySelectorAll('img, main script').length"), 0)
        self.assert_fits(page)
        self.assertEqual(page.errors, [])

    def test_no_other_script_runs(self):
        page = self.open()
        page.eval(
            "(() => { const s = document.createElement('script'); s.textContent = 'window.hit = 1'; "
            "document.body.append(s); })()"
        )
        page.eval(
            "(() => { const e = document.createElement('div'); e.setAttribute('onclick', 'window.hit = 1'); "
            "document.body.append(e); e.click(); })()"
        )
        self.assertIsNone(page.eval("window.hit"))
        self.assertTrue(any("Content Security Policy" in e for e in page.errors), page.errors)
        self.assertEqual(page.eval("fetch('data:text/plain,x').then(() => 'sent', () => 'refused')"), "refused")

    def test_a_chart_says_what_it_was_at_a_moment(self):
        page = self.open()
        for k in (1, 2):
            told = figures()
            told["uptime_s"] += k * 10
            told["tokens"]["generated"] += 1000 * k * k
            self.tell(page, told, figure("Tokens per second", "written") + f" === '{(100, 300)[k - 1]}'")
        box = page.eval(
            "(({left, top, width, height}) => [left, top, width, "
            "height])(document.querySelector('.plot').getBoundingClientRect())"
        )
        x = box[0] + box[2] * page.eval("charts[0].x(1)") / 600
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=box[1] + box[3] / 2)
        page.wait("document.querySelector('.card .span').textContent === '10 s agowritten 100, read 0'")
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        page.wait("document.querySelector('.card .span').textContent === '1 min agotop: 300now'")


if __name__ == "__main__":
    if browser.find() is None:
        print("there is no Chromium here (scripts/test_page installs one)")
        sys.exit(77)
    cluster.main()
