"""The dialects of Anthropic, Ollama and OpenAI's Responses over HTTP: each answer has the text that /v1/chat/completions gives for the same messages."""

import http.client
import itertools
import json
import socket
import sys
import unittest

from serve_process import STORIES, Server, ServerTest

USER = [{"role": "user", "content": "Tell me a story"}]
SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"], "additionalProperties": False}


def without_repeats(events):
    """Names of events, without repetitions in a row."""
    return [name for name, _ in itertools.groupby(name for name, _ in events)]


def named_events(answer):
    """(name, data) of server-sent events that have names; the name is also the type of the data."""
    found = []
    for block in answer.body.decode().split("\n\n"):
        if not block:
            continue
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        assert found[-1][0] == found[-1][1]["type"]
    return found


class Dialects(ServerTest):
    flags = ("--metrics", "--parallel", 2, "--alias", "stories")

    def chat(self, messages, **more):
        """The reference: text and usage."""
        answer = self.ok("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 12, **more}).json
        return answer["choices"][0]["message"]["content"], answer["usage"]


class Anthropic(Dialects):
    BODY = {"model": "any", "messages": USER, "max_tokens": 12, "temperature": 0}

    def test_messages(self):
        expected, usage = self.chat(USER)
        answer = self.ok("/v1/messages", self.BODY)
        self.assertTrue(answer.headers["request-id"].startswith("req_"))
        message = answer.json
        self.assertTrue(message["id"].startswith("msg_"))
        self.assertEqual((message["type"], message["role"], message["model"]), ("message", "assistant", "stories"))
        self.assertEqual(message["content"], [{"type": "text", "text": expected}])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("max_tokens", None))
        counts = message["usage"]
        self.assertEqual(counts["input_tokens"] + counts["cache_read_input_tokens"], usage["prompt_tokens"])
        self.assertEqual(counts["output_tokens"], 12)
        self.assertEqual(self.ok("/v1/messages/count_tokens", {"model": "any", "messages": USER}).json, {"input_tokens": usage["prompt_tokens"]})

    def test_streams(self):
        whole = self.ok("/v1/messages", self.BODY).json
        stream = self.ok("/v1/messages", {**self.BODY, "stream": True})
        self.assertTrue(stream.headers["Content-Type"].startswith("text/event-stream"))
        events = named_events(stream)
        names = [name for name, _ in events]
        self.assertEqual(names[:2] + names[-3:], ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(names[2:-3]), {"content_block_delta"})
        self.assertEqual(events[0][1]["message"]["content"], [])
        self.assertEqual("".join(data["delta"]["text"] for _, data in events[2:-3]), whole["content"][0]["text"])
        self.assertEqual(events[-2][1]["delta"], {"stop_reason": "max_tokens", "stop_sequence": None})
        self.assertEqual(events[-2][1]["usage"]["output_tokens"], 12)

    def test_systems_blocks_and_turns(self):
        turns = [{"role": "system", "content": "Short.\nKind."}, {"role": "user", "content": "Hi\nYou"}, {"role": "assistant", "content": "Yes"},
                 {"role": "user", "content": "Go on"}]
        expected, usage = self.chat(turns)
        body = {**self.BODY, "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Short."},
                                        {"type": "text", "text": "Kind.", "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "user", "content": "You"},
                             {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]}, {"role": "user", "content": "Go on"}]}
        self.assertEqual(self.ok("/v1/messages", body).json["content"][0]["text"], expected)
        self.assertEqual(self.ok("/v1/messages/count_tokens", body).json["input_tokens"], usage["prompt_tokens"])
        self.assertEqual(self.ok("/v1/messages", {**body, "system": "Short.\nKind."}).json["content"][0]["text"], expected)
        # The last message of the assistant is continued; thoughts are accepted.
        begun = [*USER, {"role": "assistant", "content": "Once"}]
        expected, _ = self.chat(begun)
        blocks = [*USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}, {"type": "text", "text": "Once"}]}]
        for messages in (begun, blocks):
            body = {**self.BODY, "messages": messages, "thinking": {"type": "enabled", "budget_tokens": 1024}}
            self.assertEqual(self.ok("/v1/messages", body).json["content"][0]["text"], expected)

    def test_stop_sequences(self):
        text, _ = self.chat(USER, max_tokens=60)
        word = text.split()[4]
        message = self.ok("/v1/messages", {**self.BODY, "max_tokens": 60, "stop_sequences": ["never there", word]}).json
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("stop_sequence", word))
        self.assertEqual(message["content"][0]["text"], text[:text.index(word)])

    def test_errors(self):
        image = [{"role": "user", "content": [{"type": "image", "source": {}}]}]
        for change, status, kind, words in (
            ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
            ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
            ({"messages": []}, 400, "invalid_request_error", "messages"),
            ({"messages": 1}, 400, "invalid_request_error", "messages"),
            ({"messages": [1]}, 400, "invalid_request_error", "messages.0.role"),
            ({"messages": [{"role": "system", "content": "a"}]}, 400, "invalid_request_error", "messages.0.role"),
            ({"messages": [{"role": "user", "content": 1}]}, 400, "invalid_request_error", "messages.0.content"),
            ({"messages": [{"role": "user", "content": []}]}, 400, "invalid_request_error", "messages"),
            ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, 400, "invalid_request_error", "text"),
            ({"messages": image}, 400, "invalid_request_error", "image"),
            ({"system": 5}, 400, "invalid_request_error", "system"),
            ({"thinking": {"type": "x"}}, 400, "invalid_request_error", "thinking"),
            ({"stop_sequences": [1]}, 400, "invalid_request_error", "stop_sequences"),
            ({"stream": "yes"}, 400, "invalid_request_error", "stream"),
            ({"messages": [{"role": "user", "content": "word " * 2000}]}, 400, "invalid_request_error", "context size"),
        ):
            with self.subTest(change=str(change)[:80]):
                answer = self.server.post("/v1/messages", {**self.BODY, **change})
                self.assertEqual((answer.status, answer.json["type"], answer.json["error"]["type"]), (status, "error", kind), answer.body)
                self.assertIn(words, answer.json["error"]["message"])
                self.assertEqual(answer.json["request_id"], answer.headers["request-id"])
        for path, method, status, kind in (("/v1/messages", "GET", 405, "invalid_request_error"), ("/v1/messages/x", "POST", 404, "not_found_error")):
            answer = self.server.ask(method, path, "{}" if method == "POST" else None, {"Content-Type": "application/json"})
            self.assertEqual((answer.status, answer.json["error"]["type"]), (status, kind))


class Ollama(Dialects):
    def lines(self, path, body):
        answer = self.ok(path, body)
        self.assertEqual(answer.headers["Content-Type"], "application/x-ndjson")
        return [json.loads(line) for line in answer.body.decode().splitlines()]

    def test_chat(self):
        expected, usage = self.chat(USER)
        body = {"model": "stories:latest", "messages": USER, "options": {"temperature": 0, "num_predict": 12, "num_ctx": 4096}, "keep_alive": "5m"}
        whole = self.ok("/api/chat", {**body, "stream": False}).json
        self.assertEqual((whole["message"], whole["done"], whole["done_reason"]), ({"role": "assistant", "content": expected}, True, "length"))
        self.assertEqual((whole["prompt_eval_count"], whole["eval_count"], whole["model"]), (usage["prompt_tokens"], 12, "stories"))
        self.assertGreater(whole["total_duration"], 0)
        self.assertRegex(whole["created_at"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        *parts, last = self.lines("/api/chat", body)
        self.assertEqual("".join(part["message"]["content"] for part in parts), expected)
        self.assertEqual([part["done"] for part in parts], [False] * len(parts))
        self.assertEqual((last["done"], last["done_reason"], last["message"]["content"], last["eval_count"]), (True, "length", "", 12))

    def test_generate(self):
        options = {"temperature": 0, "num_predict": 12}
        expected, _ = self.chat([{"role": "system", "content": "Be kind"}, *USER])
        whole = self.ok("/api/generate", {"model": "stories", "system": "Be kind", "prompt": USER[0]["content"], "stream": False, "options": options}).json
        self.assertEqual((whole["response"], whole["done"]), (expected, True))
        raw = self.ok("/completion", {"prompt": "Once upon", "temperature": 0, "n_predict": 12}).json["content"]
        *parts, last = self.lines("/api/generate", {"model": "stories", "prompt": "Once upon", "raw": True, "options": options})
        self.assertEqual(("".join(part["response"] for part in parts), last["done"]), (raw, True))
        self.assertEqual(self.server.post("/api/generate", {"model": "stories", "prompt": "a", "suffix": "b"}).status, 501)  # no such tokens

    def test_only_loading(self):
        for path, body, empty in (("/api/generate", {}, "response"), ("/api/generate", {"prompt": ""}, "response"), ("/api/chat", {"messages": []}, "message")):
            for stream in (True, False):
                answer = self.ok(path, {"model": "stories", "stream": stream, **body}).json
                self.assertEqual((answer["done"], answer["done_reason"]), (True, "load"))
                self.assertIn(empty, answer)

    def test_formats(self):
        body = {"model": "stories", "messages": USER, "stream": False, "options": {"seed": 1, "num_predict": 60}}
        text = self.ok("/api/chat", {**body, "format": SCHEMA}).json["message"]["content"]
        self.assertIn(json.loads(text)["kind"], ("cat", "dog"))
        self.assertTrue(self.ok("/api/chat", {**body, "format": "json", "options": {"num_predict": 3}}).json["message"]["content"].startswith("{"))
        word = self.chat(USER, max_tokens=40)[0].split()[3]
        stopped = self.ok("/api/chat", {**body, "options": {"temperature": 0, "num_predict": 40, "stop": [word]}}).json
        self.assertEqual(stopped["done_reason"], "stop")
        self.assertNotIn(word, stopped["message"]["content"])

    def test_embeddings(self):
        expected = self.ok("/v1/embeddings", {"input": ["a dog", "a cat"]}).json["data"]
        found = self.ok("/api/embed", {"model": "stories", "input": ["a dog", "a cat"]}).json
        self.assertEqual(found["embeddings"], [item["embedding"] for item in expected])
        self.assertEqual(self.ok("/api/embed", {"model": "stories", "input": "a dog"}).json["embeddings"], [expected[0]["embedding"]])
        plain = self.ok("/api/embeddings", {"model": "stories", "prompt": "a dog"}).json["embedding"]
        length = sum(x * x for x in plain) ** 0.5
        for a, b in zip(plain, expected[0]["embedding"], strict=True):
            self.assertAlmostEqual(a / length, b, places=5)
        self.assertNotAlmostEqual(length, 1, places=2)
        long = "word " * 2000
        self.assertIn("context size", self.server.post("/api/embed", {"model": "stories", "input": long}).json["error"])
        self.assertEqual(len(self.ok("/api/embed", {"model": "stories", "input": long, "truncate": True}).json["embeddings"]), 1)

    def test_information(self):
        self.assertRegex(self.server.get("/api/version").json["version"], r"^\d+\.\d+\.\d+$")
        [model] = self.server.get("/api/tags").json["models"]
        self.assertEqual((model["name"], model["model"], model["details"]["family"], model["details"]["format"]), ("stories", "stories", "llama", "gguf"))
        self.assertRegex(model["digest"], "^[0-9a-f]{64}$")
        [running] = self.server.get("/api/ps").json["models"]
        self.assertEqual((running["digest"], running["size_vram"], running["context_length"]), (model["digest"], 0, 512))
        for body in ({"model": "stories"}, {"name": "stories"}, {"model": "stories", "verbose": True}):
            show = self.ok("/api/show", body).json
            self.assertEqual(show["capabilities"], ["completion", "tools"])
            self.assertEqual((show["model_info"]["general.architecture"], show["details"]["family"]), ("llama", "llama"))
            self.assertEqual(show["model_info"]["llama.context_length"], 512 if "llama.context_length" in show["model_info"] else None)
            tokens = show["model_info"]["tokenizer.ggml.tokens"]
            self.assertTrue(len(tokens) == 512 if body.get("verbose") else tokens is None)
        for path in ("/api/version", "/api/tags", "/api/ps"):
            self.assertEqual(self.server.ask("HEAD", path).status, 200)

    def test_errors(self):
        chat = {"model": "stories", "messages": USER}
        for path, body, status, words in (
            ("/api/chat", {**chat, "messages": 1}, 400, "messages"),
            ("/api/chat", {**chat, "messages": [{"content": "a"}]}, 400, "messages[0].role"),
            ("/api/chat", {**chat, "messages": [{"role": "user", "content": [1]}]}, 400, "messages[0].content"),
            ("/api/chat", {**chat, "messages": [{"role": "user", "content": "a", "images": ["aa"]}]}, 400, "images"),
            ("/api/chat", {**chat, "options": 1}, 400, "options"),
            ("/api/chat", {**chat, "options": {"temperature": "x"}}, 400, "temperature"),
            ("/api/chat", {**chat, "options": {"num_predict": "x"}}, 400, "num_predict"),
            ("/api/chat", {**chat, "format": "xml"}, 400, "format"),
            ("/api/chat", {**chat, "format": {"type": "text"}}, 400, "format"),
            ("/api/chat", {**chat, "keep_alive": []}, 400, "keep_alive"),
            ("/api/chat", {**chat, "think": 1}, 400, "think"),
            ("/api/chat", {**chat, "stream": 1}, 400, "stream"),
            ("/api/chat", {**chat, "messages": [{"role": "user", "content": "word " * 2000}]}, 400, "context size"),
            ("/api/generate", {"prompt": 1}, 400, "prompt"),
            ("/api/generate", {"prompt": "a", "template": "x"}, 501, "template"),
            ("/api/generate", {"prompt": "a", "context": [1]}, 501, "context"),
            ("/api/generate", {"suffix": "a"}, 400, "prompt"),
            ("/api/embed", {}, 400, "input"),
            ("/api/embeddings", {"prompt": ["a"]}, 400, "prompt"),
            ("/api/none", {}, 404, "/api/none"),
        ):
            with self.subTest(path=path, body=str(body)[:80]):
                answer = self.server.post(path, body)
                self.assertEqual((answer.status, list(answer.json)), (status, ["error"]), answer.body)
                self.assertIn(words, answer.json["error"])


class Responses(Dialects):
    def test_answers(self):
        expected, usage = self.chat(USER)
        body = {"model": "any", "input": USER[0]["content"], "temperature": 0, "max_output_tokens": 12}
        for given in (body["input"], USER, [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me a story"}]}]):
            answer = self.ok("/v1/responses", {**body, "input": given}).json
            self.assertEqual((answer["object"], answer["status"], answer["incomplete_details"]), ("response", "incomplete", {"reason": "max_output_tokens"}))
            [item] = answer["output"]
            self.assertEqual((item["type"], item["role"], item["content"][0]["type"], item["content"][0]["text"]), ("message", "assistant", "output_text", expected))
            self.assertEqual((answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]), (usage["prompt_tokens"], 12))
        turns = [{"role": "system", "content": "Be kind\nBe short"}, *USER, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "More"}]
        expected, _ = self.chat(turns)
        items = [{"role": "developer", "content": "Be short"}, *USER, {"type": "reasoning", "summary": []},
                 {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes", "annotations": []}]}, {"role": "user", "content": "More"}]
        answer = self.ok("/responses", {**body, "instructions": "Be kind", "input": items, "tools": [{"type": "web_search"}]}).json
        self.assertEqual(answer["output"][0]["content"][0]["text"], expected)

    def test_streams(self):
        body = {"input": "Tell me a story", "temperature": 0, "max_output_tokens": 12}
        whole = self.ok("/v1/responses", body).json
        events = named_events(self.ok("/v1/responses", {**body, "stream": True}))
        self.assertEqual([data["sequence_number"] for _, data in events], list(range(len(events))))
        names = [name for name, _ in events]
        self.assertEqual(names[:4], ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"])
        self.assertEqual(names[-4:], ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"])
        text = "".join(data["delta"] for _, data in events[4:-4])
        self.assertEqual((text, events[-4][1]["text"]), (whole["output"][0]["content"][0]["text"],) * 2)
        last = events[-1][1]["response"]
        self.assertEqual((last["output"][0]["content"], last["usage"]["output_tokens"]), (whole["output"][0]["content"], 12))
        self.assertEqual(last["output"][0]["id"], events[2][1]["item"]["id"])

    def test_formats(self):
        form = {"format": {"type": "json_schema", "name": "pet", "schema": SCHEMA, "strict": True}}
        answer = self.ok("/v1/responses", {"input": "A pet", "text": form, "max_output_tokens": 60}).json
        self.assertIn(json.loads(answer["output"][0]["content"][0]["text"])["kind"], ("cat", "dog"))
        self.assertEqual((answer["status"], answer["text"]), ("completed", form))

    def test_errors(self):
        for change, status, param in (({"input": None}, 400, "input"), ({"input": []}, 400, "input"), ({"input": [1]}, 400, "input[0]"),
                                      ({"input": [{"role": "x", "content": "a"}]}, 400, "input[0]"), ({"input": [{"type": "item_reference"}]}, 400, "input[0]"),
                                      ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, 400, "input[0]"),
                                      ({"instructions": 1}, 400, "instructions"), ({"max_output_tokens": 0}, 400, "max_output_tokens"),
                                      ({"previous_response_id": "resp_1"}, 501, "previous_response_id"), ({"background": True}, 501, "background"),
                                      ({"text": {"format": {"type": "x"}}}, 400, "text.format"), ({"tools": 1}, 400, "tools")):
            with self.subTest(change):
                answer = self.server.post("/v1/responses", {"input": "a", **change})
                self.assertEqual((answer.status, answer.json["error"]["param"]), (status, param), answer.body)


class Tools(Dialects):
    """The grammar of a tool forces the call, so a small model writes it; the template describes none, so the server does."""

    PARAMETERS = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"], "additionalProperties": False}
    CHAT = [{"type": "function", "function": {"name": "pet", "description": "finds a pet", "parameters": PARAMETERS}}]
    MINE = {"name": "pet", "description": "finds a pet", "input_schema": PARAMETERS}
    FLAT = {"type": "function", "name": "pet", "description": "finds a pet", "parameters": PARAMETERS}
    # A history with a call and its result, in the form of OpenAI.
    HISTORY = [*USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "pet", "arguments": json.dumps({"kind": "dog"})}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Rex"}]

    def prompt(self, tools=True):
        """Tokens of the history with the tool, as the chat counts them."""
        return self.chat(self.HISTORY, max_tokens=1, **({"tools": self.CHAT} if tools else {}))[1]["prompt_tokens"]

    def test_anthropic(self):
        body = {"model": "any", "messages": USER, "max_tokens": 200, "temperature": 0, "tools": [self.MINE, {"type": "bash_20250124", "name": "bash"}]}
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "pet", "disable_parallel_tool_use": True}):
            message = self.ok("/v1/messages", {**body, "tool_choice": choice}).json
            [call] = message["content"]
            self.assertEqual((message["stop_reason"], call["type"], call["name"]), ("tool_use", "tool_use", "pet"))
            self.assertIn(call["input"]["kind"], ("cat", "dog"))
            events = named_events(self.ok("/v1/messages", {**body, "tool_choice": choice, "stream": True}))
            self.assertEqual(without_repeats(events), ["message_start", "content_block_start", "content_block_delta", "content_block_stop",
                                                       "message_delta", "message_stop"])
            block = events[1][1]["content_block"]
            self.assertEqual((block["type"], block["name"], block["input"]), ("tool_use", "pet", {}))
            pieces = [data["delta"]["partial_json"] for name, data in events if name == "content_block_delta"]
            self.assertEqual(json.loads("".join(pieces)), call["input"])
            self.assertGreater(len(pieces), 2)
            self.assertEqual(events[-2][1]["delta"]["stop_reason"], "tool_use")
        history = [*USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "pet", "input": {"kind": "dog"}}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "Rex"}]}]}]
        for result in (history[2]["content"][0], {**history[2]["content"][0], "content": "Rex"}):
            count = self.ok("/v1/messages/count_tokens", {"messages": [*history[:2], {"role": "user", "content": [result]}], "tools": [self.MINE]}).json
            self.assertEqual(count["input_tokens"], self.prompt())
        for change, words in (({"tool_choice": {"type": "x"}}, "tool_choice"), ({"tools": 1}, "tools"), ({"tools": [{"name": 1}]}, "tools"),
                              ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}, "'input' of a call"),
                              ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id")):
            answer = self.server.post("/v1/messages", {**body, **change})
            self.assertEqual((answer.status, answer.json["error"]["type"]), (400, "invalid_request_error"), answer.body)
            self.assertIn(words, answer.json["error"]["message"])

    def test_ollama(self):
        body = {"model": "stories", "messages": USER, "tools": self.CHAT, "stream": False, "options": {"temperature": 0, "num_predict": 3}}
        free, _ = self.chat(USER, tools=self.CHAT, max_tokens=3)
        self.assertEqual(self.ok("/api/chat", body).json["message"]["content"], free)
        self.assertIn("tools", self.ok("/api/show", {"model": "stories"}).json["capabilities"])
        history = [*USER, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "pet", "arguments": {"kind": "dog"}}}]},
                   {"role": "tool", "tool_name": "pet", "content": "Rex"}]
        self.assertEqual(self.ok("/api/chat", {**body, "messages": history}).json["prompt_eval_count"], self.prompt())
        for change in ({"tools": 1}, {"tools": [1]}, {"messages": [{"role": "assistant", "content": "", "tool_calls": 1}]}, {"format": "json"}):
            self.assertEqual(self.server.post("/api/chat", {**body, **change}).status, 400, change)

    def test_responses(self):
        body = {"input": "A pet", "max_output_tokens": 200, "temperature": 0, "tools": [self.FLAT, {"type": "web_search"}], "parallel_tool_calls": False}
        for choice in ("required", {"type": "function", "name": "pet"}):
            answer = self.ok("/v1/responses", {**body, "tool_choice": choice}).json
            [call] = answer["output"]
            self.assertEqual((answer["status"], call["type"], call["name"]), ("completed", "function_call", "pet"))
            self.assertIn(json.loads(call["arguments"])["kind"], ("cat", "dog"))
            events = named_events(self.ok("/v1/responses", {**body, "tool_choice": choice, "stream": True}))
            self.assertEqual(without_repeats(events), ["response.created", "response.in_progress", "response.output_item.added",
                                                       "response.function_call_arguments.delta", "response.function_call_arguments.done",
                                                       "response.output_item.done", "response.completed"])
            [last] = events[-1][1]["response"]["output"]
            pieces = [data["delta"] for name, data in events if name.endswith("arguments.delta")]
            self.assertEqual((last["arguments"], "".join(pieces), events[-3][1]["arguments"], events[-2][1]["item"]["call_id"]),
                             (call["arguments"],) * 3 + (last["call_id"],))
            self.assertGreater(len(pieces), 2)
        items = [*USER, {"type": "function_call", "call_id": "call_1", "name": "pet", "arguments": json.dumps({"kind": "dog"})},
                 {"type": "function_call_output", "call_id": "call_1", "output": "Rex"}]
        for tools in (True, False):
            answer = self.ok("/v1/responses", {**body, "input": items, "max_output_tokens": 1, "tools": [self.FLAT] if tools else []}).json
            self.assertEqual(answer["usage"]["input_tokens"], self.prompt(tools))
        for change in ({"input": [{"type": "function_call", "name": "pet"}]}, {"input": [{"type": "function_call_output"}]}):
            self.assertEqual(self.server.post("/v1/responses", {**body, **change}).status, 400, change)


class Keys(unittest.TestCase):
    def test_keys_and_several_models(self):
        server = Server("--api-key", "secret", "--alias", "one", "--alias", "two", models=(STORIES, STORIES))
        body = {"model": "two", "messages": USER, "max_tokens": 3}
        self.assertEqual(server.post("/v1/messages", body).json["error"]["type"], "authentication_error")
        self.assertEqual(server.post("/v1/messages", body, {"x-api-key": "secret"}).json["model"], "two")
        key = {"Authorization": "Bearer secret"}
        answer = server.post("/v1/messages", {**body, "model": "three"}, key)
        self.assertEqual((answer.status, answer.json["error"]["type"]), (404, "not_found_error"))
        answer = server.post("/api/chat", {**body, "model": "three"}, key)
        self.assertEqual((answer.status, "three" in answer.json["error"]), (404, True))
        self.assertEqual(server.post("/api/chat", {**body, "model": "one:latest", "stream": False, "options": {"num_predict": 3}}, key).json["model"], "one")
        self.assertEqual([model["name"] for model in server.get("/api/tags", **key).json["models"]], ["one", "two"])
        self.assertEqual(list(server.get("/api/tags").json), ["error"])
        self.assertEqual(server.stop(), 0)


class Port(unittest.TestCase):
    def test_the_port_of_ollama(self):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", 11434))
            except OSError:
                self.skipTest("another program has the port")
        server = Server("--ollama")
        answers = []
        for port in (server.port, 11434):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/api/tags")
            answers.append(json.loads(connection.getresponse().read()))
            connection.close()
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
