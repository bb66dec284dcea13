"""Real clients: the packages openai and langchain-openai, where they are installed (tests/requirements-all.txt)."""

import os
import sys
import tempfile
import unittest

from serve_process import Server, fill_queue, start_failing

try:
    import httpx
    import openai
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

MESSAGES = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Tell me one"}]


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "secret")
        cls.url = f"http://127.0.0.1:{cls.server.port}/v1"
        cls.client = openai.OpenAI(api_key="secret", base_url=cls.url, max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0, "".join(cls.server.lines)

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
        """The client asks for base64 unless told otherwise; LangChain sends token ids of another vocabulary unless told otherwise."""
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
