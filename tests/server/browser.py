"""Chromium without a window, driven through the pipe of its DevTools protocol: no driver and no package is needed."""

import base64
import fcntl
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 120  # seconds against a hang; nothing is measured
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowUp": (38, ""), "ArrowDown": (40, "")}

if not PROGRAM:
    print("skipped: no chromium")
    sys.exit(77)


def high(descriptor):
    """The same file under a number that the child's 3 and 4 do not overwrite."""
    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return other


class Navigated(Exception):
    """The page was left before it had answered."""


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        child_in, to_child = map(high, os.pipe())
        from_child, child_out = map(high, os.pipe())

        def place():
            os.dup2(child_in, 3)
            os.dup2(child_out, 4)

        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-sandbox",
                 "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--user-data-dir=" + self.folder, "about:blank"]
        self.process = subprocess.Popen([PROGRAM, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        close_fds=False, preexec_fn=place)
        os.close(child_in)
        os.close(child_out)
        self.output = os.fdopen(to_child, "wb", buffering=0)
        self.input = os.fdopen(from_child, "rb")
        self.number = 0
        self.answers = {}
        self.pages = {}
        self.changed = threading.Condition()
        self.ended = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        data = b""
        while piece := self.input.read1(1 << 20):
            *messages, data = (data + piece).split(b"\0")
            for message in map(json.loads, messages):
                with self.changed:
                    if "id" in message:
                        self.answers[message["id"]] = message
                    elif message.get("sessionId") in self.pages:
                        self.pages[message["sessionId"]].events.put(message)
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def call(self, method, session=None, **parameters):
        with self.changed:
            self.number += 1
            number = self.number
            message = {"id": number, "method": method, "params": parameters}
            if session:
                message["sessionId"] = session
            self.output.write(json.dumps(message).encode() + b"\0")
            assert self.changed.wait_for(lambda: number in self.answers or self.ended, LIMIT), f"no answer to {method}"
            assert number in self.answers, "the browser has ended"
            answer = self.answers.pop(number)
        error = answer.get("error", {}).get("message", "")
        if "navigated" in error or "context" in error:
            raise Navigated(error)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def page(self, width=1200, height=800, mobile=False, dark=False):
        """A page with a storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        return self.page_in(context, width, height, mobile, dark)

    def page_in(self, context, width=1200, height=800, mobile=False, dark=False):
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, context, session)
        with self.changed:
            self.pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(domain + ".enable")
        page.resize(width, height, mobile)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])
        return page

    def close(self):
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self.process.kill()
        self.process.wait(LIMIT)
        self.reader.join(LIMIT)
        self.output.close()
        self.input.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Page:
    def __init__(self, browser, context, session):
        self.browser, self.context, self.session = browser, context, session
        self.events = queue.Queue()
        self.requests, self.problems = [], []

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def collect(self):
        """Takes the events that have arrived: addresses that were requested, errors and broken rules."""
        while not self.events.empty():
            event = self.events.get()
            name, data = event["method"], event["params"]
            if name == "Network.requestWillBeSent":
                self.requests.append(data["request"]["url"])
            elif name == "Runtime.exceptionThrown":
                self.problems.append(data["exceptionDetails"]["exception"].get("description", "exception"))
            elif name == "Log.entryAdded" and data["entry"]["source"] in ("security", "violation"):
                self.problems.append(data["entry"]["text"])
            elif name == "Page.javascriptDialogOpening":
                self.problems.append("dialog: " + data["message"])
                self.call("Page.handleJavaScriptDialog", accept=False)

    def run(self, script):
        """The value of an expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True,
                           allowUnsafeEvalBlockedByCSP=False)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition):
        """Waits until the expression is true, and returns its value."""
        end = time.monotonic() + LIMIT
        while not (value := self.run_or_nothing(condition)):
            if time.monotonic() > end:
                self.collect()
                raise AssertionError(f"waited in vain for {condition}; problems: {self.problems}; the page shows: " + self.run("document.body.innerText")[:2000])
            time.sleep(0.02)
        return value

    def run_or_nothing(self, script):
        """The value of an expression; None if the page is being replaced by another."""
        try:
            return self.run(script)
        except Navigated:
            return None

    def wait_problem(self, text):
        end = time.monotonic() + LIMIT
        while not any(text in problem for problem in self.problems):
            assert time.monotonic() < end, (text, self.problems)
            self.collect()
            time.sleep(0.02)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement?.dataset.ready !== undefined")

    def reload(self):
        """Waits for the new document: the old one may become ready after the call."""
        self.run("window.isReplaced = true")
        self.call("Page.reload")
        self.wait("!window.isReplaced && document.documentElement?.dataset.ready !== undefined")

    def box(self, selector, place=0):
        """The middle of an element, as soon as it stands still and nothing covers it."""
        return self.wait(f"""(async () => {{
            const item = document.querySelectorAll({json.dumps(selector)})[{place}];
            if (!item) return null;
            item.scrollIntoView({{block: "center"}});
            const first = item.getBoundingClientRect();
            await new Promise((done) => setTimeout(done, 20));
            const box = item.getBoundingClientRect();
            const middle = [box.x + box.width / 2, box.y + box.height / 2];
            return box.x === first.x && box.y === first.y && item.contains(document.elementFromPoint(...middle)) ? middle : null;
        }})()""")

    def mouse(self, kind, box):
        self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def click(self, selector, place=0):
        """A real click."""
        box = self.box(selector, place)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, box)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        code, text = KEYS[key] if key in KEYS else (ord(key.upper()), key)
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
