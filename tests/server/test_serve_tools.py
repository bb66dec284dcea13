"""Tools of /v1/chat/completions: a small model that knows nothing of tools must write correct calls, in the form of each template."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from serve_process import LIMIT, SALVO, STORIES, Server

TEMPLATES = {file.stem: file.read_text() for file in sorted((pathlib.Path(__file__).parent.parent / "templates/tools").glob("*.jinja"))}
FORMS = {"command_r7b": "json", "deepseek": "json", "deepseek_v31": "json", "deepseek_v32": "parameters", "functionary": "json",
         "functionary_v32": "recipients", "gemma4": "parameters", "glm": "parameters", "granite": "json", "harmony": "channels", "hermes": "json",
         "kimi": "json", "kimi_queue": "json", "lfm2": "parameters", "llama3": "json", "mistral": "json", "mistral_new": "json", "plain": "json", "qwen3_coder": "parameters"}
DESCRIBED = {"deepseek", "deepseek_v31", "plain"}  # templates that do not list tools
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "strict": True, "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "minimum": 10, "maximum": 99}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"], "additionalProperties": False}}}
NOW = {"type": "function", "function": {"name": "now"}}
USER = [{"role": "user", "content": "What is it?"}]
HISTORY = USER + [{"role": "assistant", "content": None, "tool_calls": [{"id": "call00001", "type": "function", "function": {
    "name": "add", "arguments": "{\"a\": 12, \"b\": \"x\"}"}}]}, {"role": "tool", "tool_call_id": "call00001", "content": "twelve"}]


class Tools(unittest.TestCase):
    servers = {}

    def serve(self, template):
        """One server for each template."""
        if template not in self.servers:
            with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as file:
                file.write(template)
            self.servers[template] = Server("--chat-template-file", file.name, "--ctx-size", 1024)
            os.unlink(file.name)
        return self.servers[template]

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers.values():
            assert server.stop() == 0, "".join(server.lines)

    def chat(self, server, status=200, **more):
        answer = server.post("/v1/chat/completions", {"messages": USER, "tools": [ADD, NOW], "max_tokens": 300, "seed": 3, "chat_template_kwargs": {"enable_thinking": False}, **more})
        self.assertEqual(answer.status, status, answer.body)
        return answer

    def check_call(self, call, name):
        self.assertEqual((call["type"], call["function"]["name"]), ("function", name))
        self.assertTrue(re.fullmatch(r"call_[0-9a-f]{16}|functions\.\w+:\d", call["id"]), call)
        arguments = json.loads(call["function"]["arguments"])
        if name == "add":
            self.assertTrue(10 <= arguments["a"] <= 99 and arguments["b"] in "xy" and len(arguments) == 2, arguments)
        else:
            self.assertEqual(arguments, {})

    def test_each_family_writes_calls(self):
        self.assertEqual(set(TEMPLATES), set(FORMS))
        for family, template in TEMPLATES.items():
            with self.subTest(family):
                server = self.serve(template)
                form = server.get("/props").json["tool_calls"]
                self.assertEqual((form["form"], form["described"]), (FORMS[family], family in DESCRIBED), form)
                choice = {"type": "function", "function": {"name": "add"}}
                body = self.chat(server, tool_choice=choice, parallel_tool_calls=False).json["choices"][0]
                self.assertEqual((body["finish_reason"], body["message"]["content"]), ("tool_calls", None), body)
                self.assertEqual(len(body["message"]["tool_calls"]), 1)
                self.check_call(body["message"]["tool_calls"][0], "add")
                messages = [*HISTORY[:1], {**HISTORY[1], "tool_calls": [{**HISTORY[1]["tool_calls"][0], "id": "functions.add:0"}]}, {**HISTORY[2], "tool_call_id": "functions.add:0"}]
                prompt = server.post("/apply-template", {"messages": messages if family == "kimi" else HISTORY, "tools": [ADD]}).json["prompt"]
                self.assertRegex(prompt.split("What is it?")[1], r"add(?s:.){1,60}12(?s:.)*x(?s:.)*twelve")
                self.assertIn("add", prompt.split("What is it?")[0] + prompt)

    def test_streams_have_the_same_calls(self):
        for family in ("hermes", "qwen3_coder", "harmony", "functionary_v32"):
            server = self.serve(TEMPLATES[family])
            for more in ({"tool_choice": "required", "parallel_tool_calls": False}, {"max_tokens": 20}):
                whole = self.chat(server, **more).json["choices"][0]
                chunks = [chunk["choices"][0] for chunk in self.chat(server, stream=True, **more).objects() if chunk["choices"]]
                deltas = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", [])]
                calls = whole["message"].get("tool_calls", [])
                if whole["finish_reason"] == "length":
                    continue  # see below
                heads = [call for call in deltas if "id" in call]
                self.assertEqual([call["index"] for call in heads], list(range(len(calls))))
                self.assertEqual([(call["type"], call["function"]["name"]) for call in heads], [("function", call["function"]["name"]) for call in calls])
                for index, call in enumerate(calls):
                    pieces = [delta["function"]["arguments"] for delta in deltas if delta["index"] == index]
                    self.assertEqual("".join(pieces), call["function"]["arguments"])
                    if call["function"]["name"] == "add":
                        self.assertGreater(len(pieces), 2)
                self.assertEqual("".join(chunk["delta"].get("content") or "" for chunk in chunks), whole["message"]["content"] or "")
                self.assertEqual(chunks[-1]["finish_reason"], whole["finish_reason"])
                if "tool_choice" in more:
                    self.assertTrue(calls)

    def test_cut_calls_are_not_lost(self):
        """Without a stream the text of the call is content; in a stream the call has the arguments that were written."""
        server = self.serve(TEMPLATES["hermes"])
        choice = {"type": "function", "function": {"name": "add"}}
        whole = self.chat(server, tool_choice=choice).json
        most = whole["usage"]["completion_tokens"]
        seen = set()
        for limit in {*range(1, most, 9), most - 1}:
            cut = self.chat(server, tool_choice=choice, max_tokens=limit).json["choices"][0]
            chunks = [chunk["choices"][0] for chunk in self.chat(server, tool_choice=choice, max_tokens=limit, stream=True).objects() if chunk["choices"]]
            calls = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", [])]
            self.assertEqual((cut["finish_reason"], chunks[-1]["finish_reason"]), ("length", "length"))
            if cut["message"].get("tool_calls"):
                seen.add("whole")
            else:
                self.assertTrue("<tool_call>".startswith(cut["message"]["content"][:11]), cut)
                arguments = "".join(call["function"]["arguments"] for call in calls)
                content = "".join(chunk["delta"].get("content") or "" for chunk in chunks)
                self.assertTrue(cut["message"]["content"].endswith(arguments) if calls else content == cut["message"]["content"], (cut, chunks))
                seen.add("piece" if calls else "text")
        self.assertEqual(seen, {"whole", "piece", "text"})

    def test_none_has_no_tools(self):
        server = self.serve(TEMPLATES["hermes"])
        with_none = self.chat(server, tool_choice="none", temperature=0).json["choices"][0]["message"]
        free = self.chat(server, tools=[], temperature=0).json["choices"][0]["message"]
        self.assertEqual(with_none, free)

    def test_mistakes_are_400(self):
        server = self.serve(TEMPLATES["hermes"])
        bad_call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{"}}
        for more in ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, {"tools": [{"type": "function"}]},
                     {"tools": [{**ADD, "function": {**ADD["function"], "parameters": {"divisibleBy": 2}}}]},
                     {"messages": USER + [{"role": "assistant", "tool_calls": [bad_call]}]},
                     {"messages": USER + [{"role": "assistant", "tool_calls": [{}]}]},
                     {"messages": USER + [{"role": "assistant", "tool_calls": 1}]}, {"messages": USER + HISTORY[2:]}, {"response_format": {"type": "json_object"}}):
            self.chat(server, 400, **more)

    def test_variables_of_the_template_end_reasoning(self):
        server = self.serve(TEMPLATES["deepseek"])
        for thinks in (True, False):
            message = self.chat(server, tools=[], max_tokens=20, chat_template_kwargs={"enable_thinking": thinks}).json["choices"][0]["message"]
            self.assertEqual((bool(message["content"]), bool(message.get("reasoning_content"))), (not thinks, thinks))

    def test_models_think_unless_told_otherwise(self):
        server = self.serve("{% if enable_thinking %}on{% else %}off{% endif %}")
        for variables, prompt in (({}, "on"), ({"chat_template_kwargs": {"x": 1}}, "on"), ({"chat_template_kwargs": {"enable_thinking": True}}, "on"),
                                  ({"chat_template_kwargs": {"enable_thinking": False}}, "off"), ({"tools": [NOW]}, "on")):
            answer = server.post("/apply-template", {"messages": USER, **variables}).json["prompt"]
            self.assertEqual(answer.strip().split("\n")[-1], prompt, variables)

    def test_templates_of_options(self):
        chatml = "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n"
        for flags, prompt in (((), chatml), (("--chat-template", "chatml"), chatml), (("--chat-template", "<<{{ messages[0].content }}>>"), "<<What is it?>>")):
            server = Server(*flags)
            self.assertEqual(server.post("/apply-template", {"messages": USER}).json["prompt"], prompt)
            self.assertIn(prompt[:2], server.get("/props").json["chat_template"])
            self.assertEqual(server.stop(), 0)
            self.assertEqual("has no chat template: chats are written as ChatML" in "".join(server.lines), not flags)
        for flags, words in ((("--chat-template", "llama2"), "expected a template in Jinja, or chatml"), (("--chat-template", "{{ a", "--chat-template-file", "x"), "cannot be combined"),
                             (("--chat-template", "{{ a"), "template")):
            done = subprocess.run([SALVO, "serve", "--port", "0", "-m", STORIES, *flags], capture_output=True, text=True, timeout=LIMIT)
            self.assertTrue(done.returncode in (1, 2) and words in done.stderr, done)

    def test_reasoning_is_apart(self):
        server = self.serve("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}")
        message = self.chat(server, tools=[], max_tokens=20).json["choices"][0]["message"]
        self.assertEqual(message["content"], "")
        self.assertTrue(message["reasoning_content"])
        chunks = self.chat(server, tools=[], max_tokens=20, stream=True).objects()
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        self.assertEqual("".join(delta.get("reasoning_content", "") for delta in deltas), message["reasoning_content"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
