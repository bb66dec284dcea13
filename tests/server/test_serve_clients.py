"""Real clients: the packages openai, langchain-openai, anthropic and ollama, where they are installed (tests/requirements-all.txt)."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

from serve_process import Server, fill_queue, start_failing

try:
    import anthropic
    import httpx
    import ollama
    import openai
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

MESSAGES = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Tell me one"}]


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "secret")
        cls.url = f"http://127.0.0.1:{cls.server.port}/v1"
        cls.client = openai.OpenAI(api_key="secret", base_url=cls.url, max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0, "".join(cls.server.lines)


class Clients(Serving):
    def test_openai_chat(self):
        options = {"model": "any", "messages": MESSAGES, "max_tokens": 12, "seed": 4, "logprobs": True, "top_logprobs": 3}
        whole = self.client.chat.completions.create(**options)
        choice = whole.choices[0]
        self.assertEqual((choice.finish_reason, whole.usage.completion_tokens, len(choice.logprobs.content)), ("length", 12, 12))
        text, usage = "", None
        for part in self.client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
            usage = part.usage or usage
            text += "".join(choice.delta.content or "" for choice in part.choices)
        self.assertEqual(text, choice.message.content)
        self.assertEqual(usage.completion_tokens, 12)

    def test_openai_text(self):
        whole = self.client.completions.create(model="any", prompt=["Once", "There"], max_tokens=5, n=2, logprobs=2, echo=True, seed=1)
        self.assertEqual([choice.index for choice in whole.choices], [0, 1, 2, 3])
        self.assertTrue(all(choice.logprobs.token_logprobs[0] is None for choice in whole.choices))
        parts = self.client.completions.create(model="any", prompt="Once", max_tokens=5, seed=1, stream=True)
        self.assertEqual("Once" + "".join(part.choices[0].text for part in parts), whole.choices[0].text.strip())

    def test_openai_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="any", messages=MESSAGES, temperature="hot")
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(api_key="wrong", base_url=self.url, max_retries=0).models.list()
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="any", prompt=[5] * 600)
        self.assertEqual(caught.exception.body["type"], "exceed_context_size_error")
        self.assertEqual([model.id for model in self.client.models.list()], ["stories260K-f32"])

    def test_langchain(self):
        chat = ChatOpenAI(model="any", api_key="secret", base_url=self.url, max_tokens=12, seed=4, temperature=0.7, max_retries=0)
        whole = chat.invoke("Tell me a story")
        self.assertEqual(whole.usage_metadata["output_tokens"], 12)
        self.assertEqual("".join(part.content for part in chat.stream("Tell me a story")), whole.content)

    def test_embeddings(self):
        """By default the client asks for base64, and LangChain sends token ids of another vocabulary."""
        texts = ["Once upon a time", "a dog"]
        packed = self.client.embeddings.create(model="any", input=texts)
        plain = self.client.embeddings.create(model="any", input=texts, encoding_format="float")
        self.assertEqual([item.index for item in packed.data], [0, 1])
        for got, expected in zip(packed.data, plain.data, strict=True):
            self.assertEqual(len(got.embedding), 64)
            self.assertTrue(all(abs(a - b) < 1e-6 for a, b in zip(got.embedding, expected.embedding, strict=True)))
        self.assertGreater(packed.usage.prompt_tokens, 2)
        self.assertEqual(len(self.client.embeddings.create(model="any", input=[[1, 2], [3]], dimensions=5).data[1].embedding), 5)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.embeddings.create(model="any", input="")
        self.assertEqual(caught.exception.param, "input")
        chain = OpenAIEmbeddings(model="any", api_key="secret", base_url=self.url, check_embedding_ctx_length=False, max_retries=0)
        documents = chain.embed_documents(texts)
        self.assertEqual(len(documents), 2)
        for got, expected in zip([*documents, chain.embed_query(texts[1])], [0, 1, 1], strict=True):
            self.assertTrue(all(abs(a - b) < 1e-6 for a, b in zip(got, plain.data[expected].embedding, strict=True)))


class Dialects(Serving):
    """The reference is the text that the chat of openai gives for the same messages."""

    def chat(self, **more):
        whole = self.client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=12, temperature=0, **more)
        return whole.choices[0].message.content, whole.usage

    def test_anthropic(self):
        expected, usage = self.chat()
        request = {"model": "any", "system": MESSAGES[0]["content"], "messages": MESSAGES[1:], "max_tokens": 12,
                   "extra_body": {"temperature": 0}}
        with anthropic.Anthropic(api_key="secret", base_url=self.url.removesuffix("/v1"), max_retries=0) as client:
            whole = client.messages.create(**request)
            self.assertEqual((whole.content[0].text, whole.stop_reason, whole.usage.output_tokens), (expected, "max_tokens", 12))
            self.assertTrue(whole._request_id.startswith("req_"))
            self.assertEqual(client.messages.count_tokens(model="any", system=request["system"], messages=request["messages"]).input_tokens,
                             usage.prompt_tokens)
            with client.messages.stream(**request) as stream:
                self.assertEqual("".join(stream.text_stream), expected)
                last = stream.get_final_message()
            self.assertEqual((last.content[0].text, last.stop_reason, last.usage.output_tokens), (expected, "max_tokens", 12))
            blocks = [{"type": "text", "text": MESSAGES[0]["content"], "cache_control": {"type": "ephemeral"}}]
            self.assertEqual(client.messages.create(**{**request, "system": blocks}).content[0].text, expected)
            with self.assertRaises(anthropic.BadRequestError) as caught:
                client.messages.create(**{**request, "extra_body": {"temperature": "hot"}})
            self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with anthropic.Anthropic(api_key="wrong", base_url=self.url.removesuffix("/v1"), max_retries=0) as client, \
                self.assertRaises(anthropic.AuthenticationError):
            client.messages.create(**request)

    def test_ollama(self):
        expected, usage = self.chat()
        client = ollama.Client(host=self.url.removesuffix("/v1"), headers={"Authorization": "Bearer secret"})
        self.addCleanup(client.close)
        request = {"model": "any", "messages": MESSAGES, "options": {"temperature": 0, "num_predict": 12}, "keep_alive": 60}
        whole = client.chat(**request)
        self.assertEqual((whole.message.content, whole.done_reason, whole.eval_count, whole.prompt_eval_count),
                         (expected, "length", 12, usage.prompt_tokens))
        self.assertEqual("".join(part.message.content for part in client.chat(**request, stream=True)), expected)
        made = client.generate("any", MESSAGES[1]["content"], system=MESSAGES[0]["content"], options=request["options"])
        self.assertEqual((made.response, made.done), (expected, True))
        parts = client.generate("any", MESSAGES[1]["content"], system=MESSAGES[0]["content"], options=request["options"], stream=True)
        self.assertEqual("".join(part.response for part in parts), expected)
        [model] = client.list().models
        self.assertEqual((model.model, model.details.family, client.ps().models[0].model), ("stories260K-f32", "llama", "stories260K-f32"))
        self.assertIn("completion", client.show("any").capabilities)
        embedded = self.client.embeddings.create(model="any", input="a dog", encoding_format="float").data[0].embedding
        self.assertEqual(list(client.embed("any", "a dog").embeddings[0]), embedded)
        self.assertEqual(len(client.embeddings("any", "a dog").embedding), 64)
        with self.assertRaises(ollama.ResponseError) as caught:
            client.chat("any", MESSAGES, options={"temperature": -1})
        self.assertEqual(caught.exception.status_code, 400)
        self.assertIn("temperature", caught.exception.error)

    def test_tools(self):
        """A grammar forces the call, so the weights do not matter."""
        parameters = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"], "additionalProperties": False}
        function = {"name": "pet", "description": "finds a pet", "parameters": parameters}
        chat = {"type": "function", "function": function}
        whole = self.client.chat.completions.create(model="any", messages=MESSAGES, tools=[chat], tool_choice="required", max_tokens=200, parallel_tool_calls=False)
        [call] = whole.choices[0].message.tool_calls
        self.assertIn(json.loads(call.function.arguments)["kind"], ("cat", "dog"))
        with anthropic.Anthropic(api_key="secret", base_url=self.url.removesuffix("/v1"), max_retries=0) as client:
            request = {"model": "any", "messages": MESSAGES[1:], "max_tokens": 200, "tools": [{"name": "pet", "input_schema": parameters}],
                       "tool_choice": {"type": "tool", "name": "pet", "disable_parallel_tool_use": True}}
            message = client.messages.create(**request)
            self.assertEqual((message.stop_reason, message.content[0].name), ("tool_use", "pet"))
            with client.messages.stream(**request) as stream:
                last = stream.get_final_message()
            self.assertEqual((last.content[0].type, last.stop_reason), ("tool_use", "tool_use"))
            self.assertIn(last.content[0].input["kind"], ("cat", "dog"))
            messages = [*MESSAGES[1:], {"role": "assistant", "content": last.content},
                        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": last.content[0].id, "content": "Rex"}]}]
            self.assertTrue(client.messages.create(**{**request, "messages": messages}).content)
        answer = self.client.responses.create(model="any", input="A pet", tools=[{"type": "function", **function, "strict": True}], tool_choice="required",
                                              parallel_tool_calls=False, max_output_tokens=200)
        [item] = answer.output
        self.assertIn(json.loads(item.arguments)["kind"], ("cat", "dog"))
        again = [{"role": "user", "content": "A pet"}, item, {"type": "function_call_output", "call_id": item.call_id, "output": "Rex"}]
        self.assertTrue(self.client.responses.create(model="any", input=again, max_output_tokens=5).output_text)
        with ollama.Client(host=self.url.removesuffix("/v1"), headers={"Authorization": "Bearer secret"}) as client:
            messages = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "pet", "arguments": {"kind": "dog"}}}]},
                        {"role": "tool", "tool_name": "pet", "content": "Rex"}]
            self.assertEqual(client.chat("any", messages, tools=[chat], options={"num_predict": 3}).message.role, "assistant")
        chain = ChatOpenAI(model="any", api_key="secret", base_url=self.url, max_tokens=200, max_retries=0).bind_tools([chat], tool_choice="pet")
        found = chain.invoke("A pet").tool_calls[0]
        self.assertEqual((found["name"], found["args"]["kind"] in ("cat", "dog")), ("pet", True))

    def test_responses(self):
        expected, usage = self.chat()
        request = {"model": "any", "instructions": MESSAGES[0]["content"], "input": MESSAGES[1]["content"], "max_output_tokens": 12, "temperature": 0}
        whole = self.client.responses.create(**request)
        self.assertEqual((whole.output_text, whole.status, whole.incomplete_details.reason), (expected, "incomplete", "max_output_tokens"))
        self.assertEqual((whole.usage.input_tokens, whole.usage.output_tokens), (usage.prompt_tokens, 12))
        with self.client.responses.stream(**request) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        self.assertEqual(text, expected)
        events = list(self.client.responses.create(**request, stream=True))
        self.assertEqual((events[0].type, events[-1].type, events[-1].response.output_text), ("response.created", "response.incomplete", expected))
        self.assertEqual(self.client.responses.create(**request, tools=[{"type": "web_search"}]).output_text, expected)
        chain = ChatOpenAI(model="any", api_key="secret", base_url=self.url, use_responses_api=True, max_retries=0, temperature=0)
        self.assertTrue(chain.invoke("Tell me a story").text)
        with self.assertRaises(openai.BadRequestError):
            self.client.responses.create(**{**request, "max_output_tokens": 0})


class Families(unittest.TestCase):
    """A grammar forces the call, whatever the template and the weights: every client reads it, whole and streamed."""

    PARAMETERS = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"], "additionalProperties": False}
    CHAT = {"type": "function", "function": {"name": "pet", "description": "finds a pet", "parameters": PARAMETERS}}

    def check(self, name, arguments):
        self.assertEqual(name, "pet")
        self.assertIn((arguments if isinstance(arguments, dict) else json.loads(arguments))["kind"], ("cat", "dog"))

    def check_openai(self, url):
        question = {"model": "any", "messages": MESSAGES[1:], "tools": [self.CHAT], "tool_choice": "required", "parallel_tool_calls": False,
                    "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
        with openai.OpenAI(api_key="none", base_url=url + "/v1", max_retries=0) as client:
            [call] = client.chat.completions.create(**question).choices[0].message.tool_calls
            self.check(call.function.name, call.function.arguments)
            deltas = [delta for part in client.chat.completions.create(**question, stream=True) for choice in part.choices
                      for delta in choice.delta.tool_calls or []]
            self.check(deltas[0].function.name, "".join(delta.function.arguments for delta in deltas))
            messages = [*MESSAGES[1:], {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
                        {"role": "tool", "tool_call_id": call.id, "content": "Rex"}]
            self.assertEqual(client.chat.completions.create(model="any", messages=messages, max_tokens=3).choices[0].finish_reason, "length")

    def check_anthropic(self, url):
        question = {"model": "any", "messages": MESSAGES[1:], "max_tokens": 300, "tools": [{"name": "pet", "input_schema": self.PARAMETERS}],
                    "tool_choice": {"type": "tool", "name": "pet", "disable_parallel_tool_use": True}, "thinking": {"type": "disabled"}}
        with anthropic.Anthropic(api_key="none", base_url=url, max_retries=0) as client, client.messages.stream(**question) as stream:
            [block] = stream.get_final_message().content
        self.check(block.name, block.input)

    def check_langchain(self, url):
        chain = ChatOpenAI(model="any", api_key="none", base_url=url + "/v1", max_retries=0,
                           extra_body={"chat_template_kwargs": {"enable_thinking": False}}).bind_tools([self.CHAT], tool_choice="pet")
        call = chain.invoke("A pet").tool_calls[0]
        self.check(call["name"], call["args"])

    def check_responses(self, url):
        with openai.OpenAI(api_key="none", base_url=url + "/v1", max_retries=0) as client:
            question = {"model": "any", "input": "A pet", "tools": [{"type": "function", **self.CHAT["function"], "strict": True}], "tool_choice": "required",
                        "parallel_tool_calls": False, "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
            [item] = client.responses.create(**question).output
            self.check(item.name, item.arguments)
            with client.responses.stream(**question) as stream:
                deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
            self.check("pet", "".join(deltas))
            again = [{"role": "user", "content": "A pet"}, item, {"type": "function_call_output", "call_id": item.call_id, "output": "Rex"}]
            self.assertEqual(client.responses.create(model="any", input=again, max_output_tokens=3).usage.output_tokens, 3)

    def check_ollama(self, url):
        """This interface cannot force a call: tools, a call of the history and its result reach the template."""
        with ollama.Client(host=url) as client:
            messages = [*MESSAGES[1:], {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "pet", "arguments": {"kind": "dog"}}}]},
                        {"role": "tool", "tool_name": "pet", "content": "Rex"}]
            alone = client.chat("any", MESSAGES[1:], think=False, options={"num_predict": 3})
            [*_, last] = client.chat("any", messages, tools=[self.CHAT], think=False, options={"num_predict": 3}, stream=True)
        self.assertEqual((last.done, last.done_reason, last.eval_count), (True, "length", 3))
        self.assertGreater(last.prompt_eval_count, alone.prompt_eval_count + 10)

    def test_each_family(self):
        files = sorted((pathlib.Path(__file__).parent.parent / "templates/tools").glob("*.jinja"))
        self.assertGreater(len(files), 15)
        for file in files:
            with self.subTest(file.stem):
                server = Server("--chat-template-file", file, "--ctx-size", 1024)
                self.addCleanup(server.process.kill)
                url = f"http://127.0.0.1:{server.port}"
                self.check_openai(url)
                self.check_anthropic(url)
                self.check_langchain(url)
                self.check_responses(url)
                self.check_ollama(url)
                self.assertEqual(server.get("/props").json["chat_template"], file.read_text(encoding="utf-8"))
                self.assertEqual(server.stop(), 0)


@unittest.skipUnless(len(sys.argv) > 2, "no server whose device stands still")
class Busy(unittest.TestCase):
    def test_a_full_queue_is_tried_again(self):
        """The client raises its error for a rate limit; with retries it waits as long as the server says, and is answered."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "go")
            server = start_failing(sys.argv[2], file)
            connections = fill_queue(server)
            options = {"api_key": "none", "base_url": f"http://127.0.0.1:{server.port}/v1"}
            request = {"model": "any", "prompt": "Once", "max_tokens": 3}
            with openai.OpenAI(**options, max_retries=0) as client, self.assertRaises(openai.RateLimitError) as caught:
                client.completions.create(**request)
            self.assertEqual(caught.exception.response.headers["retry-after"], "1")
            statuses = []

            def note(response):
                statuses.append(response.status_code)
                with open(file, "w", encoding="utf-8"):  # the device goes on
                    pass

            with openai.OpenAI(**options, max_retries=50, http_client=httpx.Client(event_hooks={"response": [note]})) as client:
                self.assertEqual(client.completions.create(**request).usage.completion_tokens, 3)
            self.assertEqual((statuses[0], statuses[-1]), (429, 200))
            for connection in connections:
                connection.close()
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
