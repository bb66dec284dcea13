"""/slots, /infill, the prompt cache, and other endpoints of llama.cpp that keep something."""

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

from serve_process import LIMIT, SALVO, STORIES, Server

PROMPT = "Once upon a time there was a little girl who had a red ball and a big dog"
OTHER = "Once upon a time there was a little girl who had a red ball and a small cat"


class Slots(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.server = Server("--slot-save-path", self.folder.name, "--parallel", 2, "--seed", 1)

    def tearDown(self):
        self.assertEqual(self.server.stop(), 0)
        self.folder.cleanup()

    def complete(self, prompt=PROMPT, **body):
        answer = self.server.post("/completion", {"prompt": prompt, "n_predict": 8, "temperature": 0, **body})
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def act(self, slot, action, body=None):
        return self.server.ask("POST", f"/slots/{slot}?action={action}", body, {"Content-Type": "application/json"} if body else {})

    def test_save_restore_erase(self):
        first = self.complete(id_slot=1)
        self.assertEqual((first["id_slot"], first["timings"]["cache_n"]), (1, 0))
        saved = self.act(1, "save", '{"filename": "one.bin"}')
        self.assertEqual(saved.status, 200, saved.body)
        self.assertEqual(saved.json["n_saved"], first["tokens_evaluated"] + 8 - 1)
        self.assertEqual(saved.json["n_written"], os.path.getsize(os.path.join(self.folder.name, "one.bin")))
        self.assertEqual(os.listdir(self.folder.name), ["one.bin"])
        again = self.complete(id_slot=1)
        self.assertEqual((again["timings"]["prompt_n"], again["content"]), (1, first["content"]))

        # Erased, the prompt is computed from its first token.
        erased = self.act(1, "erase")
        self.assertEqual((erased.status, erased.json["n_erased"]), (200, saved.json["n_saved"]))
        anew = self.complete(id_slot=0)
        self.assertEqual((anew["timings"]["cache_n"], anew["id_slot"], anew["content"]), (0, 0, first["content"]))
        self.assertEqual(self.act(0, "erase").json["n_erased"], saved.json["n_saved"])

        restored = self.act(0, "restore", '{"filename": "one.bin"}')
        self.assertEqual((restored.status, restored.json["n_restored"]), (200, saved.json["n_saved"]))
        self.assertEqual(self.complete()["timings"]["prompt_n"], 1)
        other = self.complete(OTHER)["timings"]
        self.assertTrue(0 < other["prompt_n"] < 10 < other["cache_n"], other)

    def test_another_server_restores(self):
        first = self.complete(id_slot=0)
        self.act(0, "save", '{"filename": "kept"}')
        self.assertEqual(self.server.stop(), 0)
        self.server = Server("--slot-save-path", self.folder.name, "--parallel", 1, "--seed", 1)
        self.assertEqual(self.act(0, "restore", '{"filename": "kept"}').status, 200)
        again = self.complete()
        self.assertEqual((again["timings"]["prompt_n"], again["content"]), (1, first["content"]))

    def test_what_is_refused(self):
        with open(os.path.join(self.folder.name, "noise"), "wb") as file:
            file.write(os.urandom(5000))
        os.symlink("/etc/passwd", os.path.join(self.folder.name, "link"))
        self.complete(id_slot=0)
        for slot, action, body, status in (
            (0, "save", '{"filename": "../out"}', 400), (0, "save", '{"filename": "a/b"}', 400), (0, "save", '{"filename": ".."}', 400),
            (0, "save", '{"filename": ""}', 400), (0, "save", '{"filename": "/tmp/x"}', 400), (0, "save", '{"filename": "a\\u0000b"}', 400),
            (0, "save", '{"filename": "link"}', 400), (0, "restore", '{"filename": "link"}', 400), (0, "save", '{"filename": "a\\\\b"}', 400),
            (0, "save", '{"filename": 5}', 400), (0, "save", "{}", 400), (0, "save", "[]", 400), (0, "save", None, 400),
            (0, "restore", '{"filename": "none"}', 400), (0, "restore", '{"filename": "noise"}', 400), (2, "erase", None, 400),
            ("x", "erase", None, 400), ("-1", "erase", None, 400), (0, "sing", None, 400), (99999999999, "erase", None, 400),
        ):
            with self.subTest([slot, action, body]):
                answer = self.act(slot, action, body)
                self.assertEqual(answer.status, status, answer.body)
                self.assertTrue(answer.json["error"]["message"])
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["link", "noise"])
        page = {"Origin": "https://page.example"}
        self.assertEqual(self.server.ask("POST", "/slots/0?action=erase", None, page).status, 415)
        self.assertEqual(self.server.ask("GET", "/slots/0").status, 405)
        self.assertEqual(self.server.post("/completion", {"prompt": "a", "id_slot": 7}).status, 400)

    def test_without_a_folder(self):
        server = Server()
        answer = server.ask("POST", "/slots/0?action=save", '{"filename": "a"}', {"Content-Type": "application/json"})
        self.assertEqual(answer.status, 501)
        self.assertIn("--slot-save-path", answer.json["error"]["message"])
        infill = server.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
        self.assertEqual(infill.status, 501)
        self.assertIn("/infill", infill.json["error"]["message"])
        self.assertEqual(server.stop(), 0)

    def test_what_is_cached(self):
        """The cache serves other connections and other slots, also for a chat, unless a request forbids it."""
        chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4, "temperature": 0}
        used = [self.server.post("/v1/chat/completions", chat).json["usage"] for _ in range(2)]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in used]
        self.assertEqual(cached, [0, used[0]["prompt_tokens"] - 1])
        first, again = self.complete(), self.complete()
        self.assertEqual((first["timings"]["cache_n"] < 10, again["timings"]["prompt_n"]), (True, 1))
        off = self.complete(cache_prompt=False)
        self.assertEqual((off["timings"]["cache_n"], off["content"]), (0, first["content"]))

    def test_timings_of_each_token(self):
        body = {"prompt": PROMPT, "n_predict": 4, "max_tokens": 4, "stream": True, "timings_per_token": True, "ignore_eos": True}
        for path, more in (("/completion", {}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            parts = self.server.post(path, {**body, **more}).objects()
            timed = [part["timings"]["predicted_n"] for part in parts if "timings" in part]
            self.assertEqual(timed[-1], 4)
            self.assertGreater(len(timed), 2)
            self.assertNotIn("timings", parts[0] if more else {})


def with_numbers(source, target, numbers):
    """Copies a GGUF file with further metadata of type uint32. The tensors begin at the next multiple of 32 again."""
    with open(source, "rb") as file:
        data = file.read()
    added = b"".join(struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", 4, value) for key, value in numbers.items())
    added += struct.pack("<Q", len("padding")) + b"padding" + struct.pack("<IQ", 8, 0)
    rest = -len(added) % 32  # a string that makes the new part a multiple of the alignment
    added = added[:-8] + struct.pack("<Q", rest) + b"x" * rest
    count = struct.unpack_from("<Q", data, 16)[0] + len(numbers) + 1
    with open(target, "wb") as file:
        file.write(data[:16] + struct.pack("<Q", count) + added + data[24:])


class Infill(unittest.TestCase):
    def test_prompts(self):
        marks = {"tokenizer.ggml.fim_pre_token_id": 500, "tokenizer.ggml.fim_suf_token_id": 501, "tokenizer.ggml.fim_mid_token_id": 502}
        files = {"tokenizer.ggml.fim_rep_token_id": 503, "tokenizer.ggml.fim_sep_token_id": 504}
        extra = [{"filename": "a.c", "text": "one"}, {"text": "two"}]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "infill.gguf")
            for numbers in (marks, {**marks, **files}):
                with_numbers(STORIES, path, numbers)
                server = Server(models=(path,))

                def ids(text, server=server):
                    return server.post("/tokenize", {"content": text, "parse_special": False}).json["tokens"]

                body = {"n_predict": 8, "temperature": 0}
                gap = {**body, "input_prefix": "Once upon", "input_suffix": "a big dog"}
                begin = [500, *ids("Once upon"), 501, *ids("a big dog"), 502]
                if len(numbers) == 3:
                    before = [token for text in ("one", "two") for token in ids("\n\n--- snippet ---\n\n") + ids(text)]
                else:
                    before = [503, *ids("myproject\n"), 504, *ids("a.c"), *ids("\n"), *ids("one"), 504, *ids("tmp"), *ids("\n"), *ids("two"),
                              504, *ids("filename\n")]
                for request, prompt in ((gap, [1, *begin]), ({**gap, "prompt": "there"}, [1, *begin, *ids("there")]),
                                        ({**gap, "input_extra": extra}, [1, *before, *begin])):
                    found, expected = server.post("/infill", request), server.post("/completion", {**body, "prompt": prompt})
                    self.assertEqual(found.status, 200, found.body)
                    self.assertEqual((found.json["content"], found.json["prompt"]), (expected.json["content"], expected.json["prompt"]))
                    self.assertEqual(found.json["tokens_evaluated"], len(prompt))
                for wrong, field in (({"input_suffix": "a"}, "input_prefix"), ({"input_prefix": "a"}, "input_suffix"),
                                     ({**gap, "input_extra": [{"filename": "ok"}]}, "input_extra"), ({**gap, "input_extra": 5}, "input_extra"),
                                     ({**gap, "prompt": [1]}, "prompt")):
                    answer = server.post("/infill", wrong)
                    self.assertEqual((answer.status, answer.json["error"]["param"]), (400, field))
                self.assertEqual(server.stop(), 0)


class Sockets(unittest.TestCase):
    def test_signals_while_loading(self):
        """The socket is gone, whenever the signal comes, and the status is 0."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            for _ in range(5):
                process = subprocess.Popen([SALVO, "serve", "-m", STORIES, "--unix-socket", path], stderr=subprocess.PIPE, text=True)
                while not os.path.exists(path) and process.poll() is None:
                    pass
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=LIMIT)
                self.assertEqual((process.returncode, os.listdir(folder)), (0, []))

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            process = subprocess.Popen([SALVO, "serve", "-m", STORIES, "--host", path], stderr=subprocess.DEVNULL)
            answer = b""
            while b"200 OK" not in answer:
                self.assertIsNone(process.poll())
                try:
                    with socket.socket(socket.AF_UNIX) as client:
                        client.connect(path)
                        client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                        answer = client.recv(4096)
                except (FileNotFoundError, ConnectionRefusedError):
                    pass
            process.terminate()
            self.assertEqual((process.wait(LIMIT), os.listdir(folder)), (0, []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
