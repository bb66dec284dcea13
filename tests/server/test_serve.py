"""`salvo serve` over HTTP: statuses, the forms of answers, and answers that equal those of `salvo run`."""

import json
import math
import signal
import socket
import subprocess
import sys
import threading
import unittest

from serve_process import LIMIT, SALVO, STORIES, Server, ServerTest

PROMPT = "Once upon a time"
CHAT = {"messages": [{"role": "user", "content": "Tell me a story"}]}


def run(*flags):
    done = subprocess.run([SALVO, "run", "-m", STORIES, "--backend", "cpu", "--json", *map(str, flags)], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=LIMIT, check=True)
    return json.loads(done.stdout)


class Serving(ServerTest):
    flags = ("--metrics", "--parallel", 2)

    def text(self, **body):
        return self.ok("/v1/completions", {"prompt": PROMPT, "max_tokens": 12, **body}).json

    def complete(self, **body):
        return self.ok("/completion", {"prompt": PROMPT, "n_predict": 12, **body}).json


class Statuses(Serving):
    def test_requests_that_are_refused(self):
        for method, path, body, status, param in (
            ("POST", "/v1/chat/completions", "{", 400, None),
            ("POST", "/v1/chat/completions", '"x"', 400, None),
            ("POST", "/v1/chat/completions", "[" * 100000, 400, None),
            ("POST", "/v1/chat/completions", "{}", 400, "messages"),
            ("POST", "/v1/completions", '{"prompt": [9999999]}', 400, "prompt"),
            ("POST", "/v1/completions", '{"prompt": [[1], 2]}', 400, "prompt"),
            ("POST", "/v1/completions", '{"prompt": []}', 400, "prompt"),
            ("POST", "/v1/completions", '{"prompt": {"a": 1}}', 400, "prompt"),
            ("POST", "/v1/completions", '{"prompt": "a", "temperature": "x"}', 400, "temperature"),
            ("POST", "/v1/completions", '{"prompt": ["a", "b"], "n": 100}', 400, "prompt"),
            ("POST", "/v1/completions", '{"prompt": "a", "logit_bias": {"99999": 1}}', 400, "logit_bias"),
            ("POST", "/completion", '{"prompt": "a", "grammar": "root ::= x"}', 400, "grammar"),
            ("POST", "/completion", '{"prompt": "a", "json_schema": {"not": {"type": "null"}, "items": {"format": "regex"}}}', 400, "json_schema"),
            ("POST", "/v1/chat/completions", '{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", '
             '"json_schema": {"schema": {"properties": {"a": {"type": "text"}}}}}}', 400, "response_format.json_schema.schema"),
            ("POST", "/tokenize", "{}", 400, "content"),
            ("POST", "/tokenize", "[]", 400, None),
            ("POST", "/detokenize", '{"tokens": [512]}', 400, "tokens"),
            ("POST", "/apply-template", '{"messages": 1}', 400, "messages"),
            ("GET", "/v1/models/other", None, 404, "model"),
            ("GET", "/nothing", None, 404, None),
            ("GET", "/v1/chat/completions", None, 405, None),
            ("POST", "/health", "{}", 405, None),
            ("DELETE", "/v1/models", None, 405, None),
        ):
            with self.subTest([method, path, body and body[:60]]):
                answer = self.server.ask(method, path, body, {"Content-Type": "application/json"} if body else {})
                self.assertEqual(answer.status, status, answer.body)
                error = answer.json["error"]
                self.assertEqual((error["code"], error["param"]), (status, param), error)
                self.assertTrue(error["message"] and error["type"])
                self.assertEqual("Allow" in answer.headers, status == 405)

    def test_types_and_hosts_are_checked(self):
        self.assertEqual(self.server.ask("POST", "/tokenize", '{"content": "a"}', {"Content-Type": "text/plain"}).status, 415)
        self.assertEqual(self.server.post("/tokenize", {"content": "a"}, {"Content-Type": "Application/JSON; charset=utf-8"}).status, 200)
        self.assertEqual(self.server.get("/health", Host="evil.example").status, 403)
        self.assertEqual(self.server.get("/health", Host="localhost:1").status, 200)

    def test_prompt_beyond_the_context(self):
        for path, body in (("/v1/completions", {"prompt": [5] * 600}), ("/completion", {"prompt": [5] * 600, "stream": True}),
                           ("/v1/chat/completions", {"messages": CHAT["messages"] * 200})):
            answer = self.server.post(path, body)
            self.assertEqual(answer.status, 400)
            error = answer.json["error"]
            self.assertEqual((error["type"], error["n_ctx"]), ("exceed_context_size_error", 512))
            self.assertGreaterEqual(error["n_prompt_tokens"], 600)
            self.assertIn("exceeds the available context size", error["message"])

    def test_small_endpoints(self):
        self.assertEqual(self.server.get("/health").json, {"status": "ok"})
        models = self.server.get("/v1/models").json["data"]
        self.assertEqual([model["id"] for model in models], ["stories260K-f32"])
        self.assertEqual(self.server.get("/models/stories260K-f32").json, models[0])
        props = self.server.get("/props").json
        self.assertEqual((props["total_slots"], props["default_generation_settings"]["n_ctx"], props["bos_token"]), (2, 512, "<s>"))
        self.assertEqual(len(self.server.get("/slots").json), 2)
        for path in ("/health", "/v1/models", "/props", "/slots", "/metrics"):
            head, full = self.server.ask("HEAD", path), self.server.get(path)
            self.assertEqual((head.status, head.body), (200, b""))
            self.assertEqual(head.headers["Content-Type"], full.headers["Content-Type"])

    def test_text_endpoints(self):
        tokens = self.ok("/tokenize", {"content": PROMPT}).json["tokens"]
        self.assertEqual(self.ok("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"], [1, *tokens])
        self.assertEqual(self.ok("/detokenize", {"tokens": tokens}).json["content"].strip(), PROMPT)
        pieces = self.ok("/tokenize", {"content": "a \u5abd", "with_pieces": True}).json["tokens"]
        data = b"".join(piece["piece"].encode() if isinstance(piece["piece"], str) else bytes(piece["piece"]) for piece in pieces)
        self.assertEqual(data.decode().strip(), "a \u5abd")
        prompt = self.ok("/apply-template", CHAT).json["prompt"]
        self.assertIn("Tell me a story", prompt)
        begun = {"messages": [*CHAT["messages"], {"role": "assistant", "content": [{"type": "text", "text": "Wh"},
                                                                                {"type": "text", "text": "ill"}]}]}
        self.assertEqual(self.ok("/apply-template", begun).json["prompt"], prompt + "Whill")
        for path, body in (("/v1/chat/completions/input_tokens", CHAT), ("/chat/completions/input_tokens", CHAT), ("/v1/responses/input_tokens", {"input": "Tell me a story"}),
                           ("/v1/messages/count_tokens", CHAT)):
            counted = self.ok(path, body).json["input_tokens"]
            self.assertEqual(counted, self.ok("/v1/chat/completions", {**CHAT, "max_tokens": 1}).json["usage"]["prompt_tokens"], path)
        self.assertEqual(self.server.get("/lora-adapters").json, [])
        for path in ("/rerank", "/v1/rerank", "/reranking"):
            self.assertEqual(self.server.post(path, {"query": "a", "documents": ["b"]}).status, 501)

    def test_the_prompt_of_a_chat(self):
        """`verbose` adds the answer in the form of /completion; a last message of the assistant is continued without a blank."""
        self.assertNotIn("__verbose", self.ok("/v1/chat/completions", {**CHAT, "max_tokens": 2}).json)
        whole = self.ok("/v1/chat/completions", {**CHAT, "max_tokens": 2, "verbose": True, "logit_bias": {"5": -3}}).json
        verbose = whole["__verbose"]
        self.assertEqual((verbose["content"], verbose["tokens_predicted"]), (whole["choices"][0]["message"]["content"], 2))
        self.assertEqual(verbose["generation_settings"]["logit_bias"], [{"token": 5, "bias": -3}])
        begun = [*CHAT["messages"], {"role": "assistant", "content": "Whill"}]
        expected = verbose["prompt"] + "Whill"
        for fields in ({}, {"continue_final_message": True}, {"continue_final_message": True, "add_generation_prompt": False}):
            found = self.ok("/v1/chat/completions", {"messages": begun, "max_tokens": 2, "verbose": True, **fields}).json
            self.assertEqual(found["__verbose"]["prompt"], expected, fields)
        closed = self.ok("/v1/chat/completions", {"messages": begun, "max_tokens": 2, "verbose": True, "add_generation_prompt": False}).json
        self.assertNotEqual(closed["__verbose"]["prompt"], expected)

    def test_speeds_count_steps(self):
        """The first token comes from the step of the prompt: one token alone has no speed."""
        timings = self.ok("/completion", {"prompt": PROMPT, "n_predict": 1}).json["timings"]
        self.assertEqual((timings["predicted_n"], timings["predicted_per_second"], timings["predicted_per_token_ms"]), (1, 0, 0))
        timings = self.ok("/completion", {"prompt": PROMPT, "n_predict": 16, "ignore_eos": True}).json["timings"]
        self.assertAlmostEqual(timings["predicted_per_second"], 15e3 / timings["predicted_ms"], places=3)
        self.assertAlmostEqual(timings["predicted_per_token_ms"], timings["predicted_ms"] / 15, places=6)

    def test_metrics_have_the_names_of_llama_cpp(self):
        """With one model they have no label."""
        answer = self.server.get("/metrics")
        self.assertGreater(int(answer.headers["Process-Start-Time-Unix"]), 1700000000)
        lines = dict(line.split(" ", 1) for line in answer.body.decode().splitlines() if line.startswith("llamacpp:"))
        self.assertLessEqual({"llamacpp:" + name for name in ("prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total", "n_decode_total",
                                                              "requests_processing", "requests_deferred")}, lines.keys())


class Constraints(Serving):
    SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                               "kind": {"enum": ["cat", "dog"]}},
              "required": ["name", "age", "kind"], "additionalProperties": False}

    def fits(self, text):
        value = json.loads(text)
        self.assertEqual(list(value), ["name", "age", "kind"])
        self.assertLessEqual(len(value["name"]), 8)
        self.assertTrue(isinstance(value["age"], int) and 0 <= value["age"] <= 120, value)
        self.assertIn(value["kind"], ("cat", "dog"))

    def test_schemas(self):
        form = {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": self.SCHEMA}}
        for seed in range(4):
            for extra in ({"response_format": form}, {"json_schema": self.SCHEMA},
                          {"response_format": {"type": "json_object", "schema": self.SCHEMA}}):
                choice = self.ok("/v1/chat/completions", {**CHAT, "seed": seed, "max_tokens": 200, **extra}).json["choices"][0]
                self.fits(choice["message"]["content"])
                self.assertEqual(choice["finish_reason"], "stop")
            answer = self.complete(json_schema=self.SCHEMA, seed=seed, n_predict=200)
            self.fits(answer["content"])
            self.assertEqual(answer["stop_type"], "eos")
        for choice in self.text(response_format=form, n=3, max_tokens=200)["choices"]:
            self.fits(choice["text"])

    def test_stream_and_logprobs(self):
        body = {**CHAT, "seed": 3, "max_tokens": 200, "json_schema": self.SCHEMA, "logprobs": True}
        whole = self.ok("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        parts = [line[6:] for line in self.ok("/v1/chat/completions", {**body, "stream": True}).body.decode().splitlines() if line.startswith("data: {")]
        self.assertEqual("".join(json.loads(part)["choices"][0]["delta"].get("content") or "" for part in parts), whole)
        self.fits(whole)

    def test_grammars(self):
        grammar = 'root ::= ("ab" | "cd"){3} "!"?'
        for seed in range(4):
            text = self.complete(grammar=grammar, seed=seed, n_predict=60)["content"]
            self.assertRegex(text, r"^(ab|cd){3}!?$")
        # Text of the end token cannot be written: an answer that cannot go on ends.
        answer = self.complete(grammar='root ::= "yes"', n_predict=60, ignore_eos=True)
        self.assertEqual((answer["content"], answer["stop_type"]), ("yes", "eos"))
        # An answer that does not end within its tokens has not matched.
        answer = self.ok("/v1/completions", {"prompt": PROMPT, "max_tokens": 3, "grammar": 'root ::= "a"{100}'}).json
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertRegex(answer["choices"][0]["text"], "^a+$")

    def test_json_objects(self):
        answer = self.ok("/v1/chat/completions", {**CHAT, "seed": 1, "max_tokens": 5, "response_format": {"type": "json_object"}}).json["choices"][0]
        self.assertTrue(answer["message"]["content"].startswith("{"))
        free = self.ok("/v1/chat/completions", {**CHAT, "seed": 1, "max_tokens": 5, "response_format": {"type": "text"}}).json["choices"][0]
        self.assertFalse(free["message"]["content"].startswith("{"))

    def test_errors_name_the_place(self):
        for extra, words in (({"json_schema": {"properties": {"a": {"type": "string", "format": "regex"}}}}, "/properties/a/format"),
                             ({"grammar": "root ::= (\n"}, "line"), ({"json_schema": {"type": "integer", "minimum": 2, "maximum": 1}}, "no text can match")):
            answer = self.server.post("/completion", {"prompt": "a", **extra})
            self.assertEqual(answer.status, 400)
            self.assertIn(words, answer.json["error"]["message"])

    def test_many_at_once(self):
        texts = {}

        def ask(number):
            word = "ab"[number % 2]
            texts[number] = (word, self.complete(grammar='root ::= "%s"{1,30}' % word, seed=number, n_predict=10 + number)["content"])
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(texts), 8)
        for word, text in texts.values():
            self.assertRegex(text, "^%s+$" % word)


class Answers(Serving):
    def test_answers_are_those_of_run(self):
        for seed in (1, 2):
            expected = run("-p", PROMPT, "-n", 40, "-s", seed)
            found = self.complete(seed=seed, n_predict=40, return_tokens=True)
            self.assertEqual((found["content"], found["tokens"]), (expected["text"], expected["ids"]))
            self.assertEqual(self.text(seed=seed, max_tokens=40)["choices"][0]["text"], expected["text"])
        greedy = run("-p", PROMPT, "-n", 300, "--temp", 0)
        self.assertEqual(self.complete(temperature=0, n_predict=300)["content"], greedy["text"])

    def test_chat(self):
        body = {**CHAT, "max_tokens": 10, "seed": 5}
        whole = self.ok("/v1/chat/completions", body).json
        choice = whole["choices"][0]
        self.assertEqual((whole["object"], choice["message"]["role"], choice["finish_reason"]), ("chat.completion", "assistant", "length"))
        self.assertTrue(whole["system_fingerprint"].startswith("b"))
        usage = whole["usage"]
        self.assertEqual((usage["completion_tokens"], usage["total_tokens"]), (10, usage["prompt_tokens"] + 10))

        stream = self.ok("/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
        self.assertTrue(stream.headers["Content-Type"].startswith("text/event-stream"))
        self.assertEqual(stream.events()[-1], "[DONE]")
        first, *parts, last, end = stream.objects()
        self.assertEqual(first["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertEqual("".join(part["choices"][0]["delta"]["content"] for part in parts), choice["message"]["content"])
        self.assertTrue(all(part["choices"][0]["finish_reason"] is None for part in parts))
        self.assertEqual((last["choices"][0]["delta"], last["choices"][0]["finish_reason"]), ({}, "length"))
        self.assertEqual((end["choices"], end["usage"]["completion_tokens"]), ([], 10))
        self.assertEqual(len({part["id"] for part in (first, *parts, last, end)}), 1)

    def test_progress_of_prompts(self):
        text = "Once upon a time there was a dog. " * 12
        for path, body, empty in (("/completion", {"prompt": "A " + text}, lambda part: part["content"] == "" and not part["stop"]),
                                  ("/v1/completions", {"prompt": "B " + text}, lambda part: part["choices"][0]["text"] == ""),
                                  ("/v1/chat/completions", {"messages": [{"role": "user", "content": "C " + text}]},
                                   lambda part: part["choices"][0]["delta"] == {"role": "assistant", "content": None})):
            body = {**body, "max_tokens": 2, "temperature": 0, "stream": True}
            plain = self.server.post(path, {**body, "return_progress": False}).objects()
            self.assertFalse([part for part in plain if "prompt_progress" in part])
            for fresh in (True, False):  # the second time all but the last token may come from the cache
                parts = self.server.post(path, {**body, "return_progress": True, "cache_prompt": not fresh}).objects()
                told = [part for part in parts if "prompt_progress" in part]
                states = [part["prompt_progress"] for part in told]
                self.assertTrue(all(map(empty, told)), told)
                self.assertGreaterEqual(len(states), 2)
                self.assertEqual({(set(state) == {"total", "cache", "processed", "time_ms"}, state["time_ms"] >= 0) for state in states}, {(True, True)})
                total, cache, processed = states[0]["total"], states[0]["cache"], [state["processed"] for state in states]
                self.assertEqual({(state["total"], state["cache"]) for state in states}, {(total, cache)})
                self.assertEqual((processed[0], processed[-1]), (cache, total))
                self.assertEqual(processed, sorted(set(processed)))
                self.assertEqual((cache == 0, total > 40), (fresh, True), states)
                self.assertEqual([parts.index(part) for part in told], list(range(parts.index(told[0]), parts.index(told[0]) + len(told))))  # before any text
            whole = self.server.post(path, {**body, "stream": False, "return_progress": True})
            self.assertEqual((whole.status, "prompt_progress" in whole.json), (200, False))
        self.assertEqual(self.server.post("/completion", {"prompt": "a", "return_progress": 1}).json["error"]["param"], "return_progress")

    def test_streams_are_the_same_text(self):
        whole = self.complete(seed=3, n_predict=60)
        parts = self.ok("/completion", {"prompt": PROMPT, "seed": 3, "n_predict": 60, "stream": True}).objects()
        self.assertEqual("".join(part["content"] for part in parts), whole["content"])
        self.assertEqual([part["stop"] for part in parts], [False] * (len(parts) - 1) + [True])
        self.assertTrue(all(part["tokens"] for part in parts[:-1]))
        self.assertEqual(parts[-1]["stop_type"], "limit")
        stream = self.ok("/v1/completions", {"prompt": PROMPT, "seed": 3, "max_tokens": 60, "stream": True, "echo": True})
        self.assertEqual("".join(part["choices"][0]["text"] for part in stream.objects()).strip(), PROMPT + whole["content"])

    def test_stop_strings(self):
        text = self.complete(temperature=0, n_predict=60)["content"]
        word = text.split()[6]
        expected = text[:text.index(word)]
        found = self.complete(temperature=0, n_predict=60, stop=["never there", word])
        self.assertEqual((found["content"], found["stop_type"], found["stopping_word"]), (expected, "word", word))
        stream = self.ok("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 60, "stop": word, "stream": True}).objects()
        self.assertEqual("".join(part["choices"][0]["text"] for part in stream), expected)
        self.assertEqual(stream[-1]["choices"][0]["finish_reason"], "stop")

    def test_several_answers(self):
        for path, body, text in (("/v1/completions", {"prompt": PROMPT}, lambda choice: choice["text"]),
                                 ("/v1/chat/completions", CHAT, lambda choice: choice["message"]["content"])):
            several = self.ok(path, {**body, "max_tokens": 12, "seed": 9, "n": 3}).json["choices"]
            self.assertEqual([choice["index"] for choice in several], [0, 1, 2])
            for index, choice in enumerate(several):
                alone = self.ok(path, {**body, "max_tokens": 12, "seed": 9 + index}).json["choices"][0]
                self.assertEqual(text(choice), text(alone))
        stream = self.ok("/v1/chat/completions", {**CHAT, "max_tokens": 12, "seed": 9, "n": 3, "stream": True}).objects()
        for index, choice in enumerate(several):
            parts = [part["choices"][0]["delta"].get("content") or "" for part in stream if part["choices"][0]["index"] == index]
            self.assertEqual("".join(parts), choice["message"]["content"])

    def test_prompts_of_all_kinds(self):
        tokens = self.ok("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]
        expected = self.complete(temperature=0)["content"]
        self.assertEqual(self.complete(temperature=0, prompt=tokens)["content"], expected)
        self.assertEqual([one["content"] for one in self.complete(temperature=0, prompt=[tokens, PROMPT])], [expected, expected])
        self.assertEqual([choice["text"] for choice in self.text(temperature=0, prompt=[PROMPT, tokens])["choices"]], [expected, expected])
        self.assertEqual(self.complete(temperature=0, prompt={"prompt_string": PROMPT})["content"], expected)
        self.assertEqual(len(self.complete(temperature=0, prompt=[{"prompt_string": PROMPT}, PROMPT])), 2)
        self.assertIsInstance(self.complete(prompt=[1, 2, 3, "text", 4])["content"], str)
        both = self.ok("/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 12}).json
        self.assertEqual((both["content"], both["choices"][0]["text"]), (expected, expected))

    def test_response_fields(self):
        found = self.complete(response_fields=["content", "generation_settings/n_predict", "prompt", "none"])
        self.assertEqual(set(found), {"content", "generation_settings/n_predict", "prompt"})
        self.assertEqual((found["generation_settings/n_predict"], found["prompt"]), (12, "<s> " + PROMPT))

    def test_biases(self):
        first = self.complete(temperature=0, n_predict=1, return_tokens=True)["tokens"][0]
        for bias in ({str(first): -100}, [[first, -100]], [[first, False]]):
            self.assertNotEqual(self.complete(temperature=0, n_predict=1, return_tokens=True, logit_bias=bias)["tokens"], [first])
        forced = self.complete(temperature=0, n_predict=3, return_tokens=True, logit_bias={"300": 1000})
        self.assertEqual(forced["tokens"], [300] * 3)

    def test_limits_of_the_answer(self):
        self.assertEqual(self.text(max_tokens=0)["choices"][0]["text"], "")
        rest = self.complete(n_predict=-1, ignore_eos=True)
        self.assertTrue(rest["truncated"])
        self.assertEqual(rest["stop_type"], "limit")


class Probabilities(Serving):
    def test_tokens_of_an_answer(self):
        found = self.complete(temperature=0, n_probs=5, n_predict=6)["completion_probabilities"]
        self.assertEqual(len(found), 6)
        for token in found:
            top = token["top_logprobs"]
            self.assertEqual((token["id"], token["logprob"]), (top[0]["id"], top[0]["logprob"]))
            self.assertEqual(bytes(token["bytes"]).decode(errors="replace"), token["token"])
            logprobs = [one["logprob"] for one in top]
            self.assertEqual(logprobs, sorted(logprobs, reverse=True))
            self.assertLessEqual(sum(map(math.exp, logprobs)), 1 + 1e-4)
        parts = self.ok("/completion", {"prompt": PROMPT, "temperature": 0, "n_probs": 5, "n_predict": 6, "stream": True}).objects()
        self.assertEqual([token for part in parts[:-1] for token in part["completion_probabilities"]], found)

        chat = self.ok("/v1/chat/completions", {**CHAT, "temperature": 0, "max_tokens": 6, "logprobs": True, "top_logprobs": 2}).json
        content = chat["choices"][0]["logprobs"]["content"]
        self.assertEqual("".join(token["token"] for token in content), chat["choices"][0]["message"]["content"])
        self.assertEqual([len(token["top_logprobs"]) for token in content], [2] * 6)

    def test_scores_of_a_prompt(self):
        """As evaluation harnesses ask: the tokens of a text have the same scores as when they were generated."""
        prompt = self.ok("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]
        made = self.complete(temperature=0, n_predict=8, n_probs=1, return_tokens=True)
        for more in ({"max_tokens": 0}, {"max_tokens": 1}):
            scored = self.text(prompt=prompt + made["tokens"], echo=True, logprobs=1, temperature=0, **more)["choices"][0]
            lists = scored["logprobs"]
            count = len(prompt) + 8 + more["max_tokens"]
            self.assertEqual([len(lists[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [count] * 4)
            self.assertIsNone(lists["token_logprobs"][0])
            self.assertIsNone(lists["top_logprobs"][0])
            for place, token in enumerate(made["completion_probabilities"]):
                self.assertAlmostEqual(lists["token_logprobs"][len(prompt) + place], token["logprob"], places=3)
                top = lists["top_logprobs"][len(prompt) + place]
                self.assertEqual(max(top, key=top.get), token["token"])
            self.assertTrue(scored["text"].strip().startswith(PROMPT + made["content"]))
            for place, name in list(zip(lists["text_offset"], lists["tokens"]))[2:len(prompt)]:
                self.assertTrue(scored["text"][place:].startswith(name), (place, name))
            self.assertEqual(lists["text_offset"], sorted(lists["text_offset"]))


class Company(Serving):
    def test_answers_do_not_depend_on_others(self):
        bodies = [{"prompt": f"{PROMPT} {number}" * (1 + number % 4), "seed": number, "n_predict": 40} for number in range(12)]
        alone = [self.complete(**body)["content"] for body in bodies]
        found = [None] * len(bodies)

        def ask(number):
            found[number] = self.complete(**bodies[number])["content"]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        self.assertEqual(found, alone)

    def test_clients_that_leave(self):
        body = json.dumps({"prompt": PROMPT, "n_predict": -1, "ignore_eos": True, "stream": True}).encode()
        head = (f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        for number in range(20):
            with socket.create_connection(("127.0.0.1", self.server.port), LIMIT) as connection:
                connection.sendall(head + body if number % 3 else head + body[:10])
                if number % 2 and number % 3:
                    self.assertTrue(connection.recv(100))
        self.server.wait_for(lambda: self.server.metric("llamacpp:requests_processing") == 0 and
                             self.server.metric("llamacpp:requests_deferred") == 0)
        self.assertEqual(len(self.complete(ignore_eos=True, return_tokens=True)["tokens"]), 12)
        self.assertEqual(self.server.metric("salvo:requests_failed_total"), 0)

    def test_requests_on_one_connection(self):
        connection = self.server.connect()
        for seed in (1, 2, 1):
            connection.request("POST", "/completion", json.dumps({"prompt": PROMPT, "seed": seed, "n_predict": 5}),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            self.assertEqual(json.loads(reply.read())["content"], self.complete(seed=seed, n_predict=5)["content"])
        connection.close()


class Starting(unittest.TestCase):
    def test_keys(self):
        server = Server("--api-key", "secret", "--api-key", "other", "--no-slots", "--cors-origins", "https://page.example")
        for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer secret"}, 200),
                                ({"X-Api-Key": "other"}, 200)):
            self.assertEqual(server.get("/props", **headers).status, status)
        self.assertEqual(server.get("/props").json["error"]["type"], "authentication_error")
        self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(server.get("/slots", **{"X-Api-Key": "other"}).status, 501)
        self.assertEqual(server.get("/metrics", **{"X-Api-Key": "other"}).status, 501)
        preflight = server.ask("OPTIONS", "/v1/chat/completions", None, {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"})
        self.assertEqual((preflight.status, preflight.headers["Access-Control-Allow-Origin"]), (200, "https://page.example"))
        self.assertEqual(server.stop(), 0)

    def test_two_models_and_defaults(self):
        server = Server("--metrics", "--no-jinja", "--embeddings", "--verbose", "--alias", "one", "--alias", "two", "--n-predict", 5, "--seed", 42, "--temp", 0.7, models=(STORIES, STORIES))
        self.assertEqual([model["id"] for model in server.get("/models").json["data"]], ["one", "two"])
        body = {"prompt": PROMPT, "max_tokens": 100}
        for name, status in (("one", 200), ("two", 200), ("three", 404), (None, 400)):
            answer = server.post("/v1/completions", {**body, "model": name})
            self.assertEqual(answer.status, status, answer.body)
            if status == 200:
                self.assertEqual((answer.json["model"], answer.json["usage"]["completion_tokens"]), (name, 5))
            else:
                self.assertEqual(answer.json["error"]["param"], "model")
        self.assertIn("__verbose", server.post("/v1/chat/completions", {**CHAT, "model": "two"}).json)
        self.assertIn(b'llamacpp:tokens_predicted_total{model="two"} ', server.get("/metrics").body)
        params = server.get("/props?model=two").json["default_generation_settings"]["params"]
        self.assertEqual((params["seed"], params["n_predict"]), (42, 5))
        self.assertAlmostEqual(params["temperature"], 0.7, places=5)
        texts = {server.post("/v1/completions", {**body, "model": "one"}).json["choices"][0]["text"] for _ in range(3)}
        self.assertEqual(len(texts), 1)
        self.assertEqual(server.stop(), 0)

    def test_signals(self):
        server = Server("--drain-delay", 100000)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: server.get("/health").status == 503)
        self.assertIn("Retry-After", server.get("/health").headers)
        self.assertEqual(server.post("/completion", {"prompt": PROMPT, "n_predict": 3}).status, 200)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(Server().stop(signal.SIGINT), 0)

    def test_requests_end_before_the_server(self):
        server = Server("--drain", 100000)
        connection = server.connect()
        connection.request("POST", "/completion", json.dumps({"prompt": PROMPT, "n_predict": -1, "ignore_eos": True, "stream": True}),
                           {"Content-Type": "application/json"})
        reply = connection.getresponse()
        server.process.send_signal(signal.SIGTERM)
        events = reply.read().decode().split("\n\n")
        self.assertTrue(json.loads(events[-2].removeprefix("data: "))["stop"])
        connection.close()
        self.assertEqual(server.wait(), 0)

    def test_a_model_that_cannot_be_loaded(self):
        server = Server("--backend", "cuda", wait=False)
        self.assertEqual(server.wait(), 1)
        self.assertIn("cuda", server.lines[-1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
