"""Tools of /v1/chat/completions: a small model that knows nothing of tools must write correct calls, in the form of each template."""

import json
import os
import re
import sys
import tempfile
import unittest

from serve_process import Server

LIST = "{% if tools %}TOOLS{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
TEMPLATES = {
    "hermes": LIST + """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '' if loop.first else '\\n' }}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}{{ '\\n' }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "llama": LIST + """{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}
{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}{% else %}
{{ m.content }}{% endif %}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}""",
    "mistral": """{% for m in messages %}{% if m.role == 'user' %}[TOOLS]{{ tools | tojson }}[/TOOLS][INST]{{ m.content }}[/INST]{% elif m.tool_calls %}
{{- '[TOOL_CALLS][' }}{% for c in m.tool_calls %}{{ ', ' if not loop.first }}{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}
{{- ', "id": "' + c.id + '"}' }}{% endfor %}]</s>{% else %}{{ m.content }}</s>{% endif %}{% endfor %}""",
    "deepseek": LIST + """{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}{% else %}<|Assistant|>{% if m.tool_calls %}<|calls_begin|>
{%- for c in m.tool_calls %}<|call_begin|>{{ c.type }}<|sep|>{{ c.function.name }}
```json
{{ c.function.arguments }}
```<|call_end|>{% endfor %}<|calls_end|>{% else %}{{ m.content }}{% endif %}</s>{% endif %}{% endfor %}{% if add_generation_prompt %}<|Assistant|>{% endif %}""",
    "functionary": LIST + """{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{% for c in m.tool_calls or [] %}<function={{ c.function.name }}>
{{- c.function.arguments | tojson }}</function>{% endfor %}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}""",
    "none": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}<|assistant|>",
}
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
            self.servers[template] = Server("--chat-template-file", file.name)
            os.unlink(file.name)
        return self.servers[template]

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers.values():
            assert server.stop() == 0, "".join(server.lines)

    def chat(self, server, status=200, **more):
        answer = server.post("/v1/chat/completions", {"messages": USER, "tools": [ADD, NOW], "max_tokens": 150, "seed": 3, **more})
        self.assertEqual(answer.status, status, answer.body)
        return answer

    def check_call(self, call, name):
        self.assertEqual((call["type"], call["function"]["name"]), ("function", name))
        self.assertTrue(re.fullmatch(r"call_[0-9a-f]{16}", call["id"]), call)
        arguments = json.loads(call["function"]["arguments"])
        if name == "add":
            self.assertTrue(10 <= arguments["a"] <= 99 and arguments["b"] in "xy" and len(arguments) == 2, arguments)
        else:
            self.assertEqual(arguments, {})

    def test_each_family_writes_calls(self):
        for family, template in TEMPLATES.items():
            with self.subTest(family):
                server = self.serve(template)
                form = server.get("/props").json["tool_calls"]
                self.assertEqual(form["form"], "described" if family == "none" else "template", form)
                choice = {"type": "function", "function": {"name": "add"}}
                body = self.chat(server, tool_choice=choice, parallel_tool_calls=False).json["choices"][0]
                self.assertEqual((body["finish_reason"], body["message"]["content"]), ("tool_calls", None), body)
                self.assertEqual(len(body["message"]["tool_calls"]), 1)
                self.check_call(body["message"]["tool_calls"][0], "add")
                prompt = server.post("/apply-template", {"messages": HISTORY, "tools": [ADD]}).json["prompt"]
                self.assertRegex(prompt, r"add(?s:.){1,30}\{\"a\": 12, \"b\": \"x\"\}")
                self.assertIn("twelve" if family != "mistral" else "What", prompt)
                self.assertIn('"adds"', prompt)

    def test_streams_have_the_same_calls(self):
        server = self.serve(TEMPLATES["hermes"])
        for more in ({"tool_choice": "required"}, {"tool_choice": "required", "parallel_tool_calls": False}, {}):
            whole = self.chat(server, **more).json["choices"][0]
            chunks = [chunk["choices"][0] for chunk in self.chat(server, stream=True, **more).objects() if chunk["choices"]]
            deltas = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", [])]
            calls = whole["message"].get("tool_calls", [])
            self.assertEqual([call["index"] for call in deltas], list(range(len(calls))))
            self.assertEqual([call["function"] for call in deltas], [call["function"] for call in calls])
            self.assertEqual("".join(chunk["delta"].get("content") or "" for chunk in chunks), whole["message"]["content"] or "")
            self.assertEqual(chunks[-1]["finish_reason"], whole["finish_reason"])
            if more:
                self.assertTrue(calls)

    def test_none_has_no_tools(self):
        server = self.serve(TEMPLATES["hermes"])
        with_none = self.chat(server, tool_choice="none", temperature=0).json["choices"][0]["message"]
        free = self.chat(server, tools=[], temperature=0).json["choices"][0]["message"]
        self.assertEqual(with_none, free)

    def test_mistakes_are_400(self):
        server = self.serve(TEMPLATES["hermes"])
        bad_call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{"}}
        for more in ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, {"tools": [{"type": "function"}]},
                     {"tools": [{**ADD, "function": {**ADD["function"], "parameters": {"unevaluatedItems": {}}}}]},
                     {"messages": USER + [{"role": "assistant", "tool_calls": [bad_call]}]},
                     {"messages": USER + [{"role": "assistant", "tool_calls": [{}]}]},
                     {"messages": USER + [{"role": "assistant", "tool_calls": 1}]}, {"response_format": {"type": "json_object"}}):
            self.chat(server, 400, **more)

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
