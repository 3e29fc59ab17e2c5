"""A headless Chromium, driven by its DevTools protocol over a pipe; the standard library is enough for that."""

import base64
import contextlib
import fcntl
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading

NAMES = ("chromium-headless-shell", "chromium", "chromium-shell", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
         "--force-color-profile=srgb")
PATIENCE = 60


def find():
    """The browser's path, or None. MOESTRO_CHROMIUM names another."""
    return os.environ.get("MOESTRO_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A context manager. Messages are JSON with a zero byte at the end; what is no answer goes to its page."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="moestro-page-")
        said, ours = os.pipe()
        theirs, says = os.pipe()
        # The browser reads at 3 and writes at 4. All others of this process's descriptors are closed there by
        # themselves.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (said, says)]
        command = [find(), *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.log = open(self.profile.name + ".log", "w+")
        self.process = subprocess.Popen(command, close_fds=False, preexec_fn=lambda:
                                        (os.dup2(ends[0], 3), os.dup2(ends[1], 4)), stdout=subprocess.DEVNULL,
                                        stderr=self.log)
        for fd in (said, says, *ends):
            os.close(fd)
        self.write_lock, self.ours, self.theirs = threading.Lock(), ours, theirs
        self.number, self.answers, self.pages = 0, {}, {}
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        os.close(self.ours)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(20)
        self.log.close()
        os.unlink(self.log.name)
        self.profile.cleanup()

    def read(self):
        rest = b""
        while piece := os.read(self.theirs, 1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers.pop(message["id"]).put(message)
                elif page := self.pages.get(message.get("sessionId")):
                    page.hear(message["method"], message["params"])
        os.close(self.theirs)
        for waiting in list(self.answers.values()):
            waiting.put({"error": {"message": "the browser has ended"}})

    def call(self, method, session=None, **params):
        with self.write_lock:
            self.number += 1
            answer = self.answers[self.number] = queue.Queue()
            message = {
                "id": self.number, "method": method, "params": params, **({"sessionId": session} if session else {})
            }
            os.write(self.ours, json.dumps(message).encode() + b"\0")
        said = answer.get(timeout=PATIENCE)
        if "error" in said:
            raise AssertionError(f"{method}: {said['error']['message']}")
        return said["result"]

    def open(self, url, width=1280, height=900, dark=False, phone=False):
        return Page(self, url, width, height, dark, phone)


class Page:
    def __init__(self, browser, url, width, height, dark, phone):
        self.browser, self.errors, self.loaded = browser, [], threading.Event()
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        if not self.loaded.wait(PATIENCE):
            raise AssertionError(f"{url} is not loaded")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def hear(self, method, params):
        if method == "Page.loadEventFired":
            self.loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def eval(self, expression):
        """The value of a JavaScript expression; of a promise, what it comes to."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise AssertionError(f"{expression}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def wait(self, condition, seconds=30):
        """Until a JavaScript condition holds; looked at whenever the document changes."""
        met = self.eval(f"""new Promise((done) => {{
            const holds = () => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }};
            if (holds()) return done(true);
            const watch = new MutationObserver(() => {{ if (holds()) {{ watch.disconnect(); done(true); }} }});
            watch.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
            setTimeout(() => {{ watch.disconnect(); done(holds()); }}, {seconds * 1000});
        }})""")
        if not met:
            raise AssertionError(f"{condition} did not come true; the page says:\n{self.text()}\n{self.errors}")

    def text(self, selector="body"):
        return self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def screenshot(self, path):
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        with open(path, "wb") as out:
            out.write(base64.b64decode(picture["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        self.browser.pages.pop(self.session, None)
