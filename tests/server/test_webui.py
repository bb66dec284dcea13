"""The page of `salvo serve` in Chromium: conversations, keys, narrow screens, and answers that attack it."""

import json
import os
import tempfile
import threading
import unittest

from browser import LIMIT, Browser
from scripted_answers import Scripted
from serve_process import STORIES, Server

BROWSER = Browser()
ANSWER = ".message.assistant.last .markdown"
HOSTILE = [
    "<img src=x onerror=\"window.hacked=1\">", "<script>window.hacked=1</script>", "<svg onload=window.hacked=1></svg>",
    "<iframe srcdoc=\"<script>parent.hacked=1</script>\"></iframe>", "<style>*{display:none}</style>", "<a href='javascript:hacked=1'>a</a>",
    "[a](javascript:window.hacked=1)", "[a](JaVaScRiPt:hacked=1)", "[a](  javascript:hacked=1)", "[a](java\tscript:hacked=1)",
    "[a](data:text/html,<script>hacked=1</script>)", "[a](vbscript:x)", "[a](//evil.example/x)", "[a](/slots/0?action=erase)",
    "![a](https://evil.example/pixel.png)", "![a](//evil.example/p)", "[![a](https://evil.example/p)](https://evil.example/q)",
    "<https://evil.example/><javascript:hacked=1>", "https://evil.example/\"onmouseover=\"hacked=1", "[a](https://evil.example/\"onclick=hacked=1)",
    "```\"><img src=x onerror=hacked=1>\n</code></pre><script>hacked=1</script>\n```", "`<img src=x onerror=hacked=1>`",
    "| <img src=x onerror=hacked=1> |\n|---|\n| <script>hacked=1</script> |", "&lt;img src=x onerror=hacked=1&gt; &#60;script&#62;hacked=1&#60;/script&#62;",
    "\u202egnp.exe\u202c [https://good.example\u202e](https://evil.example) `a\u202eb`", "<form action=https://evil.example><input name=a></form>",
    "<link rel=stylesheet href=https://evil.example/x.css><meta http-equiv=refresh content=0;url=https://evil.example>", "<base href=https://evil.example/>",
    "[a]: javascript:hacked=1\n\n[a]", "- [x] <img src=x onerror=hacked=1>", "# <img src=x onerror=hacked=1>", "\0\ufffe\ud7ff<img/src/onerror=hacked=1>",
]

# As a browser whose storage is full while window.full is true: the transaction of a put ends with its error.
FULL_STORAGE = """(() => {
    window.full = true;
    const put = IDBObjectStore.prototype.put;
    IDBObjectStore.prototype.put = function (value) { return window.full ? this.transaction.abort() : put.call(this, value); };
    Object.defineProperty(IDBTransaction.prototype, "error", { get: () => new DOMException("full", "QuotaExceededError") });
})()"""


def plain(text):
    def script(_, answer):
        answer.begin()
        for place in range(0, len(text), 5):
            answer.send(text[place:place + 5])
        answer.end(predicted_n=40, predicted_per_second=20.25, predicted_ms=1975, prompt_n=9, cache_n=3, prompt_per_second=100)
    return script


class Chatting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--alias", "first", "--alias", "second", models=(STORIES, STORIES))
        cls.browser = BROWSER

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "".join(cls.server.lines)

    def setUp(self):
        self.number = 0
        self.script = None
        self.scripted = Scripted(self.server.port, self.answer)
        self.addCleanup(lambda: self.scripted.stop())

    def answer(self, body, answer):
        """The text of the test, or the number of the answer."""
        self.number += 1
        (self.script or plain(f"Answer **{self.number}**"))(body, answer)

    def page(self, url=None, **options):
        page = self.browser.page(**options)
        page.open(url or self.scripted.url)
        self.addCleanup(self.check, page, url or self.scripted.url)
        return page

    def check(self, page, url):
        """Nothing failed, and nothing was requested elsewhere."""
        page.collect()
        self.assertEqual(page.problems, [])
        strangers = [request for request in page.requests if not request.startswith((url, "blob:" + url, "about:", "data:"))]
        self.assertEqual(strangers, [])
        self.assertTrue(page.requests)

    def type(self, page, text):
        page.run("document.querySelector('#input').focus()")
        page.type(text)

    def ask(self, page, text, wait=True):
        self.type(page, text)
        page.press("Enter")
        if wait:
            self.wait(page)

    def wait(self, page):
        """The answer is complete, and the browser has saved it."""
        page.wait("document.querySelector('#send').title === 'Send' && document.querySelector('.message.assistant.last')?.ariaBusy === 'false' && document.documentElement.dataset.saved === 'true'")

    def texts(self, page):
        return page.run("[...document.querySelectorAll('.message')].map(m => m.querySelector('.bubble, .markdown').innerText)")

    def text(self, page, selector):
        return page.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def wait_text(self, page, selector, text):
        page.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")

    def hold_file(self, path):
        """The next answer to a GET of the path waits: events for its arrival and for going on."""
        arrived, go_on = threading.Event(), threading.Event()
        self.scripted.held[path] = (arrived, go_on)
        return arrived, go_on

    def hold(self, *texts):
        """A script whose answer waits before each text but the first: events of the server that let it go on."""
        steps = [threading.Event() for _ in texts[1:]]

        def script(_, answer):
            answer.begin()
            answer.send(texts[0])
            for step, text in zip(steps, texts[1:]):
                self.assertTrue(step.wait(LIMIT))
                answer.send(text)
            answer.end()
        return script, steps


class Conversations(Chatting):
    def test_answer_of_the_real_server(self):
        page = self.page(f"http://127.0.0.1:{self.server.port}/")
        page.click("#open-settings")
        for name, value in (("#set-temperature", "0"), ("#set-max_tokens", "24"), ("#system", "Be brief.")):
            page.wait("document.querySelector('#settings').open")
            page.run(f"document.querySelector('{name}').focus()")
            page.type(value)
        page.press("Escape")
        self.ask(page, "Tell me a story")
        body = {"model": "first", "temperature": 0, "max_tokens": 24, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me a story"}]}
        expected = self.server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        self.assertEqual(self.text(page, ANSWER).split(), expected.split())
        self.assertRegex(self.text(page, ".last .speed"), r"^[\d.]+ tok/s · 24 tokens")
        self.assertIn("limit of tokens", self.text(page, ".last .problem"))
        before = self.texts(page)
        page.reload()
        self.assertEqual(self.texts(page), before)
        self.assertEqual(self.text(page, "#list a"), "Tell me a story")
        page.click("#open-settings")
        page.wait("document.querySelector('#settings').open")
        self.assertEqual(page.run("document.querySelector('#set-temperature').value"), "0")
        self.assertNotEqual(page.run("document.querySelector('#set-top_k').placeholder"), "none")

    def test_stop_and_continue(self):
        gone = threading.Event()

        def endless(_, answer):
            answer.begin()
            answer.send("one *two*")
            answer.wait_until_left()
            gone.set()

        page = self.page()
        self.script = endless
        self.ask(page, "Count", wait=False)
        self.wait_text(page, ANSWER, "one two")
        page.wait("document.querySelector('#send').title === 'Stop'")
        page.click("#send")
        self.assertTrue(gone.wait(LIMIT))
        self.wait(page)
        self.assertEqual(self.texts(page), ["Count", "one two"])
        self.assertIn("Stopped.", self.text(page, ".last .problem"))
        self.script = plain(" three")
        page.click(".last .problem button")
        self.wait_text(page, ANSWER, "one two three")
        self.wait(page)
        self.assertEqual(self.scripted.bodies[-1]["messages"], [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "one *two*"}])
        gone.clear()
        self.script = endless
        self.ask(page, "Again", wait=False)
        self.wait_text(page, ANSWER, "one two")
        page.press("Escape")
        self.assertTrue(gone.wait(LIMIT))
        self.wait(page)

    def test_branches(self):
        page = self.page()
        self.ask(page, "First question")
        page.click(".last [aria-label='Answer again']")
        self.wait_text(page, ANSWER, "Answer 2")
        self.wait(page)
        self.assertEqual(self.text(page, ".last .branches"), "2/2")
        self.ask(page, "Second question")
        self.assertEqual([message["content"] for message in self.scripted.bodies[-1]["messages"]], ["First question", "Answer **2**", "Second question"])
        page.click(".message:nth-child(2) [aria-label='Previous version']")
        self.assertEqual(self.texts(page), ["First question", "Answer 1"])
        page.click(".message:nth-child(2) [aria-label='Next version']")
        self.assertEqual(self.texts(page), ["First question", "Answer 2", "Second question", "Answer 3"])
        page.click(".message:nth-child(1) [aria-label='Edit and ask again']")
        page.run("document.querySelector('.edit').select()")
        page.type("Other question")
        page.click(".edit-form [type=submit]")
        self.wait_text(page, ANSWER, "Answer 4")
        self.wait(page)
        self.assertEqual(self.scripted.bodies[-1]["messages"], [{"role": "user", "content": "Other question"}])
        page.reload()
        self.assertEqual(self.texts(page), ["Other question", "Answer 4"])
        page.click(".message:nth-child(1) [aria-label='Previous version']")
        self.assertEqual(self.texts(page), ["First question", "Answer 2", "Second question", "Answer 3"])
        page.click(".last [aria-label='Edit']")
        page.run("document.querySelector('.edit').select()")
        page.type("My own words")
        page.click(".edit-form [type=submit]")
        self.assertEqual(self.texts(page)[-1], "My own words")
        self.assertEqual(len(self.scripted.bodies), 4)

    def test_list_title_model_and_undo(self):
        page = self.page()
        page.run("(() => { const m = document.querySelector('#model'); m.value = 'second'; m.dispatchEvent(new Event('change')); })()")
        self.ask(page, "About apples")
        self.assertEqual(self.scripted.bodies[-1]["model"], "second")
        page.click("#new")
        self.ask(page, "About pears")
        page.run("document.querySelector('#title').select()")
        page.run("document.querySelector('#title').focus()")
        page.type("Fruit <b>")
        page.press("Enter")
        titles = "[...document.querySelectorAll('#list a')].map(a => a.innerText)"
        self.assertEqual(page.wait(f"{titles}.includes('Fruit <b>') && {titles}"), ["Fruit <b>", "About apples"])
        page.run("document.querySelector('#search').focus()")
        page.type("apples")
        self.assertEqual(page.run(titles), ["About apples"])
        page.click("#list a")
        page.wait("document.querySelector('.bubble')?.innerText === 'About apples'")
        page.click("#list .icon-button")
        page.wait("document.querySelectorAll('.message').length === 0")
        page.click("#toast .text-button")
        self.assertEqual(page.wait("document.querySelector('.bubble')?.innerText"), "About apples")

    def test_text_typed_at_once_is_kept(self):
        page = self.page()
        self.ask(page, "About apples")
        typed = """(() => {
            document.querySelector('%s').click();
            const input = document.querySelector('#input');
            input.value = '%s';
            input.dispatchEvent(new Event('input'));
            return new Promise(done => setTimeout(() => done(input.value), 200));
        })()"""
        self.assertEqual(page.run(typed % ("#new", "Pears")), "Pears")
        self.assertEqual(page.run(typed % ("#list a", "And apples")), "And apples")
        page.run("history.back()")
        page.wait("document.querySelector('#input').value === 'Pears' && document.querySelectorAll('.message').length === 0")
        page.run("history.forward()")
        page.wait("document.querySelector('#input').value === 'And apples' && document.querySelectorAll('.message').length === 2")

    def test_text_typed_while_the_page_loads(self):
        page = self.page()
        self.ask(page, "Question")
        self.type(page, "draft")
        loading, go_on = self.hold_file("/webui/app.js")
        page.call("Page.reload", ignoreCache=True)
        self.assertTrue(loading.wait(LIMIT))
        page.wait("document.querySelector('#input') && document.documentElement.dataset.ready === undefined")
        self.type(page, "typed early")
        go_on.set()
        page.wait("document.documentElement.dataset.ready")
        self.assertEqual(page.run("document.querySelector('#input').value"), "draft\ntyped early")

    def test_what_is_typed_survives_the_end_of_an_answer(self):
        page = self.page()
        self.ask(page, "First")
        script, [go_on] = self.hold("begin", " end")
        self.script = script
        page.click(".message:nth-child(1) [aria-label='Edit and ask again']")
        page.type(", edited")
        self.ask(page, "Second", wait=False)
        self.wait_text(page, ANSWER, "begin")
        page.click(".edit-form [type=submit]")
        self.wait_text(page, "#toast", "being written")
        self.assertEqual(page.run("document.querySelector('.edit').value"), "First, edited")
        page.run("document.querySelector('#title').focus()")
        page.run("document.querySelector('#title').select()")
        page.type("My title")
        go_on.set()
        self.wait_text(page, ANSWER, "begin end")
        self.wait(page)
        self.assertEqual(page.run("document.querySelector('#title').value"), "My title")
        self.assertEqual(page.run("document.querySelector('.edit').value"), "First, edited")
        self.script = None
        page.click(".edit-form [type=submit]")
        self.wait_text(page, ANSWER, "Answer 3")
        self.wait(page)
        self.assertEqual(self.texts(page), ["First, edited", "Answer 3"])
        self.assertEqual(self.text(page, "#list a"), "My title")

    def test_stop_at_the_end_of_an_answer_sends_nothing(self):
        page = self.page()
        script, [go_on] = self.hold("begin", " end")
        self.script = script
        self.ask(page, "First", wait=False)
        self.wait_text(page, ANSWER, "begin")
        self.type(page, "half a sent")
        # Beside the icon, which is replaced when the answer ends: no click comes from an element that is gone.
        box = page.run("(() => { const b = document.querySelector('#send').getBoundingClientRect(); return [b.x + 3, b.y + b.height / 2]; })()")
        self.assertEqual(page.run(f"document.elementFromPoint({box[0]}, {box[1]}).id"), "send")
        mouse = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        page.call("Input.dispatchMouseEvent", type="mouseMoved", **mouse)
        page.call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        go_on.set()
        self.wait(page)
        page.call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        self.assertEqual(page.run("document.querySelector('#input').value"), "half a sent")
        self.assertEqual(len(self.scripted.bodies), 1)
        page.click("#send")
        self.wait(page)
        self.assertEqual(len(self.scripted.bodies), 2)

    def test_reload_within_an_answer(self):
        page = self.page()
        script, [go_on] = self.hold("half", "")
        self.script = script
        self.ask(page, "Question", wait=False)
        self.wait_text(page, ANSWER, "half")
        page.reload()
        go_on.set()
        self.assertEqual(self.texts(page), ["Question", "half"])
        self.script = plain(" and whole")
        page.click(".last .problem button")
        self.wait_text(page, ANSWER, "half and whole")
        self.wait(page)

    def test_settings_belong_to_their_conversation(self):
        page = self.page()
        self.ask(page, "First")
        page.click("#new")
        self.ask(page, "Second")
        page.click("#open-settings")
        self.assertTrue(page.run("document.querySelector('#settings').open"))
        page.run("document.querySelector('#system').focus()")
        page.type("Of the second")
        page.run("history.back()")
        page.wait("document.querySelectorAll('.message').length === 0")
        page.run("history.back()")
        self.wait_text(page, ".bubble", "First")
        page.click("#close-settings")
        page.wait("!document.querySelector('#settings').open")
        for title, system in (("First", []), ("Second", [{"role": "system", "content": "Of the second"}])):
            page.run(f"[...document.querySelectorAll('#list a')].find(a => a.innerText === '{title}').click()")
            self.wait_text(page, ".bubble", title)
            self.ask(page, "More")
            self.assertEqual(self.scripted.bodies[-1]["messages"][:-3], system)

    def test_click_while_properties_of_the_model_arrive(self):
        page = self.page()
        self.ask(page, "Question")
        asked, go_on = self.hold_file("/props?model=first")
        page.call("Page.reload")
        self.assertTrue(asked.wait(LIMIT))
        page.wait("document.documentElement?.dataset.ready !== undefined")
        box = page.box(".last [aria-label='Answer again']")
        page.mouse("mouseMoved", box)
        page.mouse("mousePressed", box)
        go_on.set()
        page.wait("performance.getEntriesByName(new URL('/props?model=first', location).href).length > 0")
        page.run("new Promise((done) => setTimeout(done, 50))")
        page.mouse("mouseReleased", box)
        self.wait_text(page, ".last .branches", "2/2")
        self.wait(page)

    def test_two_tabs_that_answer_at_once(self):
        page = self.page()
        self.ask(page, "Question")
        other = self.browser.page_in(page.context)
        other.open(page.run("location.href"))
        slow, [finish] = self.hold("slow", " but whole")
        self.script = slow
        other.click(".last [aria-label='Answer again']")
        self.wait_text(other, ANSWER, "slow")
        self.wait_text(page, ".last .branches", "2/2")
        page.call("Page.bringToFront")  # a tab behind others does not draw
        mine, [finish_mine] = self.hold("mine", " too")
        self.script = mine
        page.click(".last [aria-label='Answer again']")
        self.wait_text(page, ANSWER, "mine")
        finish.set()
        self.wait(other)
        finish_mine.set()
        self.wait(page)
        self.assertEqual(self.text(page, ".last .problem"), "")
        page.reload()
        self.wait_text(page, ".last .branches", "3/3")
        self.assertEqual(self.texts(page)[-1], "mine too")
        page.click("[aria-label='Previous version']")
        self.assertEqual(self.texts(page)[-1], "slow but whole")
        page.click(".message:nth-child(1) [aria-label='Edit and ask again']")
        page.type(", edited")
        self.script = None
        other.click(".last [aria-label='Answer again']")
        self.wait(other)
        self.wait_text(page, ".last .branches", "/4")
        self.assertEqual(page.run("document.querySelector('.edit').value"), "Question, edited")

    def test_choice_while_a_copy_of_another_tab_arrives(self):
        page = self.page()
        self.ask(page, "Question")
        page.click(".last [aria-label='Answer again']")
        self.wait_text(page, ".last .branches", "2/2")
        self.wait(page)
        page.run("""(() => {
            const get = IDBObjectStore.prototype.get;
            IDBObjectStore.prototype.get = function (id) {
                IDBObjectStore.prototype.get = get;
                const request = get.call(this, id);
                document.querySelector("[aria-label='Previous version']").click();
                document.documentElement.dataset.clicked = "true";
                return request;
            };
            new BroadcastChannel("salvo").postMessage({ saved: location.hash.slice(1) });
        })()""")
        page.wait("document.documentElement.dataset.clicked === 'true'")
        self.wait(page)
        self.assertEqual(self.text(page, ".last .branches"), "1/2")
        page.reload()
        self.wait_text(page, ".last .branches", "1/2")

    def test_two_tabs_that_hear_nothing_of_each_other(self):
        page = self.browser.page()
        other = self.browser.page_in(page.context)
        for tab in (page, other):
            tab.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.BroadcastChannel")
        page.open(self.scripted.url)
        self.ask(page, "Question")
        other.open(page.run("location.href"))
        for tab, number in ((other, 2), (page, 3)):
            tab.click(".last [aria-label='Answer again']")
            self.wait_text(tab, ANSWER, f"Answer {number}")
            self.wait(tab)
        page.reload()
        self.wait_text(page, ".last .branches", "/3")

    def test_two_tabs_lose_nothing(self):
        page = self.page()
        self.ask(page, "Question")
        other = self.browser.page_in(page.context)
        other.open(page.run("location.href"))
        self.assertEqual(self.texts(other), ["Question", "Answer 1"])
        other.click(".last [aria-label='Answer again']")
        self.wait_text(other, ANSWER, "Answer 2")
        self.wait(other)
        self.wait_text(page, ".last .branches", "2/2")
        page.click(".last [aria-label='Answer again']")
        self.wait_text(page, ANSWER, "Answer 3")
        self.wait(page)
        page.reload()
        self.wait_text(page, ".last .branches", "3/3")

    def test_export_and_import(self):
        page = self.page()
        self.ask(page, "Keep <i>this</i>")
        page.click(".last [aria-label='Answer again']")
        self.wait_text(page, ANSWER, "Answer 2")
        self.wait(page)
        with tempfile.TemporaryDirectory() as folder:
            self.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder, browserContextId=page.context)
            page.click("#export")
            # While it is written, the browser has a second file beside it.
            self.server.wait_for(lambda: [name.endswith(".json") for name in os.listdir(folder)] == [True])
            [name] = os.listdir(folder)
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                exported = json.load(file)
            [conversation] = exported["conversations"]
            self.assertEqual([message["content"] for message in conversation["messages"]], ["Keep <i>this</i>", "Answer **1**", "Answer **2**"])

            def give(text):
                page.run("document.querySelector('#toast').replaceChildren()")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                node = page.call("DOM.querySelector", nodeId=page.call("DOM.getDocument")["root"]["nodeId"], selector="#import-file")["nodeId"]
                page.call("DOM.setFileInputFiles", files=[path], nodeId=node)
                return page.wait("document.querySelector('#toast span')?.textContent")

            self.assertIn("here already", give(json.dumps(exported)))
            other = self.page()
            page, old = other, page
            self.assertIn("1 conversation imported", give(json.dumps(exported)))
            page.click("#list a")
            self.assertEqual(page.wait("document.querySelectorAll('.message').length === 2") and self.texts(page), self.texts(old))
            for change, words in (({"version": 2}, "version 2"), ({"format": "x"}, "no conversations of this page"), ({"conversations": [{}]}, "no messages")):
                self.assertIn(words, give(json.dumps({**exported, **change})))
            self.assertIn("not JSON", give("{"))
            for change, words in (({"parent": "none"}, "no parent"), ({"role": "system"}, "role"), ({"content": 5}, "'content' is not a string"), ({"id": conversation["messages"][0]["id"]}, "one id")):
                damaged = json.loads(json.dumps(exported))
                damaged["conversations"][0]["messages"][1].update(change)
                self.assertIn(words, give(json.dumps(damaged)))
            self.assertEqual(page.run("document.querySelectorAll('#list a').length"), 1)


class Troubles(Chatting):
    def test_full_storage(self):
        page = self.page()
        self.ask(page, "Kept")
        page.run(FULL_STORAGE)
        may_leave = "dispatchEvent(new Event('beforeunload', {cancelable: true}))"
        self.assertTrue(page.run(may_leave))
        self.ask(page, "In memory")
        self.wait_text(page, "#toast", "storage for this page is full")
        self.assertFalse(page.run(may_leave))
        page.click("#toast [aria-label='Close']")
        self.ask(page, "Still in memory")
        page.click("#new")
        self.ask(page, "Another")
        self.assertTrue(page.run("document.querySelector('#toast').hidden"))
        page.click("#list a", 1)
        self.assertEqual(self.texts(page), ["Kept", "Answer 1", "In memory", "Answer 2", "Still in memory", "Answer 3"])
        page.run("window.full = false")
        self.ask(page, "Room again")
        page.wait(may_leave)
        page.reload()
        self.assertEqual(len(self.texts(page)), 8)
        page.click("#list a", 1)
        self.wait_text(page, ".bubble", "Another")

    def test_server_that_comes_back_with_another_model(self):
        page = self.page()
        script, _ = self.hold("half *an*", "")
        self.script = script
        self.ask(page, "Question", wait=False)
        self.wait_text(page, ANSWER, "half an")
        port = self.scripted.server_port
        self.scripted.stop()
        self.wait_text(page, ".last .problem", "broke off")
        page.click(".last .problem button")
        self.wait_text(page, ".last .problem", "does not answer")
        self.assertEqual(self.texts(page), ["Question", "half an"])
        other = Server("--alias", "third")
        self.addCleanup(other.stop)
        self.scripted = Scripted(other.port, self.answer, port)
        self.script = plain(" answer")
        page.click(".last .problem button")
        self.wait_text(page, ANSWER, "half an answer")
        self.wait(page)
        self.assertEqual(self.scripted.bodies[-1]["model"], "third")
        self.assertEqual(self.scripted.bodies[-1]["messages"][-1], {"role": "assistant", "content": "half *an*"})
        self.assertEqual(page.run("document.querySelector('#model').value"), "third")
        page.wait("document.querySelector('#notice').hidden")
        self.script = lambda _, answer: (answer.begin(), answer.event({"model": "fourth", "choices": [{"index": 0, "delta": {"content": "x"}}]}), answer.end(predicted_n=1))
        asked = self.scripted.held["/v1/models"] = (threading.Event(), threading.Event())
        self.ask(page, "Another model answers")
        self.assertTrue(asked[0].wait(LIMIT))
        asked[1].set()
        self.assertIn("fourth", page.run("document.querySelector('.last .speed').title"))

    def test_reasoning_that_breaks_off(self):
        page = self.page()
        self.script = lambda _, answer: (answer.begin(), answer.send("", reasoning_content="lost"))
        self.ask(page, "Question")
        self.script = lambda _, answer: (answer.begin(), answer.send("", reasoning_content="found"), answer.send("half"))
        page.click(".last .problem button")
        self.wait_text(page, ANSWER, "half")
        self.wait(page)
        self.assertEqual(page.run("document.querySelector('.last .thinking div').textContent"), "found")
        self.script = None
        page.click(".last .problem button")
        self.wait_text(page, ANSWER, "Answer 3")
        self.assertEqual(self.text(page, ".last .branches"), "2/2")


class Attacks(Chatting):
    def test_hostile_answers(self):
        page = self.page()
        page.run("window.hacked = undefined")
        text = "\n\n".join(HOSTILE)
        self.script = plain(text)
        self.ask(page, HOSTILE[0])
        self.script = lambda _, answer: (answer.begin(), answer.send("", reasoning_content=text), answer.send("done"), answer.end())
        self.ask(page, HOSTILE[1])
        page.reload()
        self.wait_text(page, ANSWER, "done")
        self.assertIsNone(page.run("window.hacked"))
        self.assertEqual(page.run("[...document.querySelectorAll('#messages :is(img, script, iframe, style, form, link, meta, base, object, svg:not(.icon))')].length"), 0)
        self.assertEqual(page.run("[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on')).length"), 0)
        links = page.run("[...document.querySelectorAll('.markdown a')].map(a => [a.protocol, a.rel, a.target])")
        self.assertTrue(links)
        for link in links:
            self.assertEqual(link, ["https:", "noopener noreferrer nofollow", "_blank"])
        shown = page.run("document.querySelector('.markdown').textContent")
        for word in ("<img src=x onerror=\"window.hacked=1\">", "<script>window.hacked=1</script>", "[a](javascript:window.hacked=1)", "<base href="):
            self.assertIn(word, shown)
        self.assertIn("\u27e8U+202E\u27e9", shown)
        self.assertIn("<svg onload", page.run("document.querySelector('.last .thinking').textContent"))
        self.assertEqual(self.text(page, "#list a"), HOSTILE[0])

    def test_policy_holds(self):
        """Were the page to make HTML from a text, the browser itself would refuse it."""
        page = self.browser.page()
        page.open(self.scripted.url)
        for script in ("document.body.innerHTML = '<img src=x>'", "eval('1')", "document.createElement('script').src = 'https://evil.example/x.js'"):
            self.assertEqual(page.run(f"(() => {{ try {{ {script}; return 'done'; }} catch (error) {{ return error.name; }} }})()") in ("TypeError", "EvalError"), True, script)
        self.assertEqual(page.run("fetch('https://evil.example/').then(() => 'done', error => error.name)"), "TypeError")
        page.run("document.body.append(Object.assign(new Image(), {src: 'https://evil.example/p.png'}))")
        page.wait_problem("evil.example/p.png")

    def test_errors_in_words(self):
        page = self.page()
        self.script = lambda _, answer: answer.refuse(400, type="exceed_context_size_error", message="x", n_prompt_tokens=700, n_ctx=512)
        self.ask(page, "Long")
        self.assertIn("700 tokens, and the context holds 512", self.text(page, ".last .problem"))
        self.script = lambda _, answer: answer.refuse(503, message="Loading model: 40 %")
        page.click(".last .problem button")
        self.wait_text(page, ".last .problem", "Loading model: 40 %")
        self.script = lambda _, answer: (answer.begin(), answer.send("half an"))
        page.click(".last .problem button")
        self.wait_text(page, ".last .problem", "broke off")
        self.assertEqual(self.text(page, ANSWER), "half an")
        self.script = lambda _, answer: (answer.begin(), answer.event({"error": {"code": 500, "message": "the device has failed"}}))
        page.click(".last .problem button")
        self.wait_text(page, ".last .problem", "the device has failed")
        self.scripted.stop()
        self.type(page, "Gone?")
        page.press("Enter")
        self.wait_text(page, ".last .problem", "does not answer")
        page.collect()
        page.problems.clear()


class Forms(Chatting):
    def test_narrow(self):
        long = "w" * 400
        self.script = plain(f"{long}\n\n```\n{long}\n```\n\n|{long}|b|\n|---|---|\n|`{long}`|{long}|\n\n- {long}\n\n> {long}\n\nhttps://good.example/{long}\n\n# {long}\n\n\\({long}\\)")
        page = self.page(width=320, height=568, mobile=True)
        fits = "Math.max(document.scrollingElement.scrollWidth, document.querySelector('#log').scrollWidth) <= 320 && innerWidth === 320"
        self.assertTrue(page.run(fits))
        self.type(page, long)
        page.click("#send")
        self.wait_text(page, ANSWER, "good.example")
        self.wait(page)
        self.assertTrue(page.run(fits))
        self.assertEqual(page.run("[...document.querySelectorAll('#messages *')].filter(e => !e.closest('.code, .table') && e.getBoundingClientRect().right > 320.5).map(e => e.outerHTML.slice(0, 80))"), [])
        page.click("#open-settings")
        page.wait("document.querySelector('#settings').open")
        self.assertTrue(page.run("document.querySelector('#settings').scrollWidth <= 320"))
        page.click("#close-settings")
        page.wait("!document.querySelector('#settings').open")
        self.assertTrue(page.run("document.querySelector('#sidebar').inert"))
        page.click("#open-sidebar")
        page.wait("!document.querySelector('#sidebar').inert")
        page.press("Escape")
        page.wait("document.querySelector('#sidebar').inert && document.activeElement.id === 'open-sidebar'")

    def test_keyboard_and_names(self):
        page = self.page()
        page.wait("document.activeElement.id === 'input'")
        page.type("one")
        page.press("Enter", shift=True)
        page.type("two")
        page.press("Enter")
        self.wait_text(page, ANSWER, "Answer 1")
        self.wait(page)
        self.assertEqual(self.texts(page)[0], "one\ntwo")
        page.press("ArrowUp")
        page.wait("document.activeElement.className === 'edit'")
        page.press("Escape")
        page.wait("!document.querySelector('.edit')")
        reached = set()
        for _ in range(40):
            page.press("Tab")
            reached.add(page.run("document.activeElement.ariaLabel ?? document.activeElement.innerText"))
        self.assertLessEqual({"Send", "Settings", "Title of the conversation", "Copy the message", "Answer again", "Edit and ask again", "Search conversations", "New conversation",
                              "Export", "Import", "Message", "Skip to the message field"}, reached)
        page.run("document.querySelector('.skip').focus()")
        page.press("Enter")
        self.assertEqual(page.run("document.activeElement.id + document.querySelectorAll('.message').length"), "input2")
        page.run("document.activeElement.blur()")
        page.press("/")
        self.assertEqual(page.run("document.activeElement.id + document.activeElement.value"), "input")
        nameless = [node for node in page.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"] and not node.get("name", {}).get("value")
                    and node["role"]["value"] in ("button", "link", "textbox", "searchbox", "combobox", "article", "navigation", "spinbutton")]
        self.assertEqual(nameless, [])

    def test_right_to_left(self):
        self.script = plain("\u0645\u0631\u062d\u0628\u0627\n\n- \u0648\u0627\u062d\u062f\n\n> \u0627\u062b\u0646\u0627\u0646\n\n```\ncode\n```\n\nlatin")
        page = self.page()
        self.ask(page, "\u0645\u0631\u062d\u0628\u0627")
        directions = page.run("[...document.querySelectorAll('.bubble, .markdown > *')].map(e => getComputedStyle(e).direction)")
        self.assertEqual(directions, ["rtl", "rtl", "rtl", "rtl", "ltr", "ltr"])

    def test_themes(self):
        page = self.page(dark=True)
        colour = "getComputedStyle(document.body).backgroundColor"
        dark = page.run(colour)
        page.click("#open-settings")
        page.wait("document.querySelector('#settings').open")
        page.run("(() => { const t = document.querySelector('#theme'); t.value = 'light'; t.dispatchEvent(new Event('change')); })()")
        self.assertNotEqual(page.run(colour), dark)
        light = page.run(colour)
        page.reload()
        self.assertEqual(page.run(colour), light)


class Access(unittest.TestCase):
    def test_files(self):
        server = Server("--api-key", "secret")
        self.addCleanup(server.stop)
        page = server.get("/")
        self.assertEqual((page.status, page.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = page.headers["Content-Security-Policy"].split("; ")
        self.assertLessEqual({"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "base-uri 'none'",
                              "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"}, set(policy))
        self.assertEqual((page.headers["X-Content-Type-Options"], page.headers["Cache-Control"]), ("nosniff", "no-cache"))
        folder = os.path.join(os.environ["SALVO_SOURCE"], "server", "webui")
        for name in os.listdir(folder):
            answer = server.get("/" if name == "index.html" else "/webui/" + name)
            with open(os.path.join(folder, name), "rb") as file:
                self.assertEqual((answer.status, answer.body), (200, file.read()), name)
            self.assertEqual(answer.headers["Content-Security-Policy"], page.headers["Content-Security-Policy"])
        script = server.get("/webui/app.js")
        head = server.ask("HEAD", "/webui/app.js")
        self.assertEqual((head.status, head.body, head.headers["Content-Length"], head.headers["ETag"]), (200, b"", str(len(script.body)), script.headers["ETag"]))
        for known, status in ((script.headers["ETag"], 304), (f'"x", W/{script.headers["ETag"]}', 304), ("*", 304), (page.headers["ETag"], 200), ("x", 200)):
            self.assertEqual(server.ask("GET", "/webui/app.js", None, {"If-None-Match": known}).status, status, known)
        self.assertEqual(server.ask("POST", "/", "{}", {"Content-Type": "application/json"}).status, 405)
        for path in ("/webui/", "/webui", "/webui/other.js", "/webui/../app.js", "/index.html", "/v1/models", "/x"):
            self.assertEqual(server.get(path).status, 401, path)

    def test_without_the_page(self):
        server = Server("--no-webui")
        self.addCleanup(server.stop)
        for path in ("/", "/webui/app.js", "/webui/style.css"):
            self.assertEqual(server.get(path).status, 404)
        self.assertEqual(server.get("/health").status, 200)

    def test_host(self):
        server = Server()
        self.addCleanup(server.stop)
        self.assertEqual(server.get("/", Host="evil.example").status, 403)

    def test_key(self):
        server = Server("--api-key", "secret", "-n", 8)
        self.addCleanup(server.stop)
        page = BROWSER.page()
        page.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
        for key in ("wrong", "secret"):
            page.wait("document.querySelector('#ask-key')?.open && document.activeElement.id === 'key' && document.activeElement.value === ''")
            page.type(key)
            page.press("Enter")
            page.wait("!document.querySelector('#ask-key').open || document.querySelector('#key').value === ''")
        page.wait("document.querySelector('#model').value === 'stories260K-f32'")
        page.reload()
        page.run("document.querySelector('#input').focus()")
        page.type("Tell me a story")
        page.press("Enter")
        page.wait("document.querySelector('.last .speed')?.innerText.includes('8 tokens')")
        self.assertNotIn("secret", page.run("JSON.stringify(localStorage) + document.documentElement.outerHTML"))


if __name__ == "__main__":
    try:
        unittest.main(argv=["test_webui"])
    finally:
        BROWSER.close()
