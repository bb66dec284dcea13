"""The Markdown renderer of the page, in Chromium: the nodes of a text, the same nodes while it streams, and texts that are bombs."""

import json
import unittest

from browser import Browser
from serve_process import Server

# Nodes are written as tag(children); text as it is, a line break as br().
TREE = """window.tree = (node) => node.nodeType === 3 ? node.data
    : node.className === "code" ? `code:${node.querySelector("span").textContent}(${node.querySelector("code").textContent})`
    : node.className === "table" ? tree(node.firstChild)
    : `${node.localName}${node.localName === "a" ? "[" + node.href + "]" : ""}${node.classList.contains("end") ? ".end" : ""}${node.getAttribute("start") ?? ""}(${[...node.childNodes].map(tree).join("")})`;
window.ready = import("/webui/markdown.js").then(({ MarkdownView }) => {
    window.view = () => new MarkdownView(document.createElement("div"), () => {});
    window.render = (text) => { const v = view(); v.update(text); return [...v.element.childNodes].map(tree).join(""); };
    window.stream = (text, size) => {
        const v = view();
        for (let end = size; end < text.length + size; end += size) v.update(text.slice(0, end));
        return [...v.element.childNodes].map(tree).join("");
    };
    window.weigh = (text) => {
        const v = view();
        v.update(text);
        document.body.append(v.element);
        let deepest = 0;
        const walk = (node, depth) => { deepest = Math.max(deepest, depth); for (const child of node.children) walk(child, depth + 1); };
        walk(v.element, 0);
        const height = v.element.getBoundingClientRect().height;
        v.element.remove();
        return [v.element.querySelectorAll("*").length, deepest, v.element.textContent.length, height > 0];
    };
    return true;
});"""

CASES = {
    "": "",
    "a\nb": "p(abr()b)",
    "a  \nb": "p(abr()b)",
    "a\n\n\n\nb": "p(a)p(b)",
    "# a #\n## b#\n####### c": "h1(a)h2(b#)p(####### c)",
    "a\n===\nb\n---\nc": "h1(a)p(b)hr()p(c)",
    "*a* **b** ***c*** _d_ __e__ ~~f~~": "p(em(a) strong(b) em(strong(c)) em(d) strong(e) del(f))",
    "snake_case_name 2*3*4 a * b * c": "p(snake_case_name 2em(3)4 a * b * c)",
    "**a *b** c*": "p(em(em(a em(b)) c))",
    "*a **b*": "p(*a *em(b))",
    "_a b* c_ *x*": "p(em(a b* c) em(x))",
    "**bold*": "p(*em(bold))",
    "**a": "p(**a)",
    "`a*b*` ``c`d`` `e": "p(code(a*b*) code(c`d) `e)",
    "\\*a\\* \\\\ \\q": "p(*a* \\ \\q)",
    "\\(a_1 + b_2\\) and \\[x\\] and \\(y": "p(span(\\(a_1 + b_2\\)) and span(\\[x\\]) and (y)",
    "[a *b*](https://e.example/x_(y)) c": "p(a[https://e.example/x_(y)](a em(b)) c)",
    '[a](https://e.example "t")': "p(a[https://e.example/](a))",
    "[a](javascript:x) [b](/c) [d]": "p([a](javascript:x) [b](/c) [d])",
    "[https://a.example](https://b.example)": "p(a[https://b.example/](https://a.example))",
    "[[a](https://b.example)](https://c.example)": "p([a[https://b.example/](a)](a[https://c.example/](https://c.example)))",
    "see https://e.example/a_b_c?x=1. (https://e.example/f)": "p(see a[https://e.example/a_b_c?x=1](https://e.example/a_b_c?x=1). (a[https://e.example/f](https://e.example/f)))",
    "<https://e.example> <b>x</b> a<br>b": "p(a[https://e.example/](https://e.example) <b>x</b> abr()b)",
    "&lt;b&gt; &amp;lt; &#x41; &nope; &#0;": "p(<b> &lt; A &nope; &#0;)",
    "![alt](https://e.example/p.png)": "p(a[https://e.example/p.png](alt))",
    "- a\n- b\n  - c\n    - d\n- e": "ul(li(a)li(bul(li(cul(li(d)))))li(e))",
    "1. a\n2. b\n  - c\n3. d": "ol(li(a)li(bul(li(c)))li(d))",
    "3) a\n4) b": "ol3(li(a)li(b))",
    "- a\n\n- b": "ul(li(p(a))li(p(b)))",
    "1. a\n\n   more\n\n2. b": "ol(li(p(a)p(more))li(p(b)))",
    "- a\nlazy\n\nb": "ul(li(abr()lazy))p(b)",
    "- a\n* b": "ul(li(a))ul(li(b))",
    "1. a\n   ```js\n   x\n     y\n   ```\n2. b": "ol(li(acode:js(x\n  y))li(b))",
    "in 2026. It\n1986. was": "p(in 2026. Itbr()1986. was)",
    "- [ ] a\n- [x] b": "ul(li(input()a)li(input()b))",
    "-": "ul(li())",
    "> a\n> > b\n> c\nlazy\n\nd": "blockquote(p(a)blockquote(p(bbr()cbr()lazy)))p(d)",
    "> - a\n>   - b": "blockquote(ul(li(aul(li(b)))))",
    "```py\na *b*\n\n  c\n```\nd": "code:py(a *b*\n\n  c)p(d)",
    "~~~\n```\n~~~": "code:(```)",
    "````\n```\n````": "code:(```)",
    "```\nopen": "code:(open)",
    "a\n\n    code\n      b\n\nc": "p(a)code:(code\n  b)p(c)",
    "| a | b |\n|---|--:|\n| 1 | `x|y` |\n| \\| | 2 | 3 |\n| 4": "table(thead(tr(th(a)th.end(b)))tbody(tr(td(1)td.end(code(x|y)))tr(td(|)td.end(2))tr(td(4))))",
    "a | b\n- | -\nc | d\n\ne": "table(thead(tr(th(a)th(b)))tbody(tr(td(c)td(d))))p(e)",
    "a | b\nc | d": "p(a | bbr()c | d)",
    "***\n- - -\n_ _ _": "hr()hr()hr()",
    "<script>a</script>": "p(<script>a</script>)",
}

SIZE, MEGA = 1 << 17, 1 << 20
BOMBS = {
    "a long line": "a" * MEGA, "words": "word " * (MEGA // 5), "stars": "*" * SIZE, "stars between": "*a" * (MEGA // 2), "pairs": "**a* " * (SIZE // 5),
    "underscores": "_a_ " * (SIZE // 4), "brackets": "[" * MEGA, "links": "[a](" * (SIZE // 4), "open links": "[a](https://e.example/" * (SIZE // 22), "images": "![" * (SIZE // 2),
    "backticks": "".join("`" * (i % 900 + 1) + " " for i in range(2000)), "escapes": "\\(" * (SIZE // 2), "quotes": ">" * SIZE, "spaced quotes": "> " * (SIZE // 2),
    "lists": "- " * (SIZE // 2), "numbers": "1. " * (SIZE // 3), "deep lists": "\n".join(" " * (2 * i) + "- a" for i in range(700)), "items": "- a\n" * (SIZE // 4),
    "many rows": "|" + "a|" * 100 + "\n|" + "-|" * 100 + "\n" + "|\n" * 100000, "many cells": "|" + "a|" * 100 + "\n|" + "-|" * 100 + ("\n" + "|a" * 100) * 5000, "wide table": "|" + "a|" * (SIZE // 4) + "\n|" + "-|" * (SIZE // 4), "bars": "a|b\n" * (SIZE // 4),
    "addresses": "https://e.example/" + ")" * 1990 + (" https://e.example/" + ")" * 1990) * 500, "hashes": "#" * SIZE, "blanks": " " * SIZE + "x", "lines": "\n" * SIZE + "x",
    "fences": "```\n" * (SIZE // 4), "entities": "&#65;" * (SIZE // 5), "angles": "<" * MEGA, "breaks": "<br>" * (SIZE // 4), "tildes": "~~a" * (SIZE // 3), "combined": "a" + "\u0301" * 100000,
    "overrides": "\u202e" * 100000, "rules": "- " * 1000 + "\n" + "=\n" * 100000,
}
KEPT = ("a long line", "brackets", "links", "open links", "images", "angles", "hashes", "quotes", "wide table", "numbers")  # without marks that become elements


class Markdown(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.browser = Browser()
        cls.page = cls.browser.page()
        cls.page.open(f"http://127.0.0.1:{cls.server.port}/")
        cls.page.run(TREE)
        cls.page.run("ready")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        assert cls.server.stop() == 0

    def test_nodes(self):
        for text, nodes in CASES.items():
            with self.subTest(text):
                self.assertEqual(self.page.run(f"render({json.dumps(text)})"), nodes)

    def test_streams_give_the_same(self):
        everything = "\n\n".join(CASES)
        for text in [*CASES, everything]:
            for size in (1, 7):
                with self.subTest([text, size]):
                    self.assertEqual(self.page.run(f"stream({json.dumps(text)}, {size})"), self.page.run(f"render({json.dumps(text)})"))

    def test_code_that_grows_keeps_its_node(self):
        self.assertTrue(self.page.run("""(() => { const v = view(); v.update("a\\n\\n```c\\nx"); const node = v.element.lastChild;
            v.update("a\\n\\n```c\\nx\\ny\\n```"); return node === v.element.lastChild && node.source === "x\\ny"; })()"""))

    def test_bombs(self):
        """Each is laid out before the limit of a call, with a limited number of elements and without loss. The first failure ends the test."""
        for name, text in BOMBS.items():
            elements, deepest, size, _ = self.page.run(f"weigh({json.dumps(text)})")
            self.assertLess(elements, 20500, name)
            self.assertLess(deepest, 30, name)
            if name in KEPT:
                self.assertGreaterEqual(size, len(text.strip()) - 1000, name)


if __name__ == "__main__":
    unittest.main(argv=["test_webui_markdown"])
