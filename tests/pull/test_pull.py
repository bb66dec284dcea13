"""`salvo pull` against a hub on this machine that lies, stalls, cuts and changes its files: a model is whole or absent."""

import json
import os
import pty
import resource
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from hub import sha256
from model_entries import with_entries
from pulling import FIRST, MAKE_WORDS, NAME, SALVO, SECOND, SOURCE, Pulling, work

HALF = len(FIRST) // 2


def split_model():
    """A model in two files; the second has no tensors."""
    def entries(number):
        return [(b"split.no", 2, struct.pack("<H", number)), (b"split.count", 2, struct.pack("<H", 2))]
    empty = struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)
    return {"big-Q8_0-00001-of-00002.gguf": with_entries(FIRST, entries(0)), "big-Q8_0-00002-of-00002.gguf": with_entries(empty, entries(1))}


class Choosing(Pulling):
    def test_by_repository_quantisation_and_file(self):
        self.hub.repositories["org/many"] = {"a-Q4_K_M.gguf": FIRST, "a-Q4_K_S.gguf": SECOND, "sub/b-Q8_0.gguf": SECOND, "mmproj-a.gguf": b"x", "c.imatrix.gguf": b"x"}
        for text, name, data in (("hf:org/repo", NAME, FIRST), ("hf:org/repo:q8_0", NAME, FIRST), ("hf:org/many", "a-Q4_K_M.gguf", FIRST),
                                 ("hf:org/many:Q4_K_S", "a-Q4_K_S.gguf", SECOND), ("hf:org/many/sub/b-Q8_0.gguf", "b-Q8_0.gguf", SECOND)):
            done = json.loads(self.pull(text, "--json"))
            self.assertEqual((done["name"], done["size"], done["sha256"], done["path"]), (name, len(data), sha256(data), self.path(name)))
            self.assertEqual(self.read(name), data)
        for text in ("hf:org/many", "hf:org/many:latest"):
            self.assertTrue(json.loads(self.pull(text, "--json"))["was_there"])
        self.assertEqual(self.models(), ["a-Q4_K_M.gguf", "a-Q4_K_S.gguf", "b-Q8_0.gguf", NAME])
        self.assertFalse([note for note in self.notes() if not note.endswith(".json")])

    def test_what_is_not_there(self):
        self.hub.repositories["org/many"] = {"a-Q4_K_M.gguf": FIRST, "a-UD-Q4_K_M.gguf": FIRST, "a-Q8_0.gguf": FIRST}
        self.hub.repositories["org/none"] = {"model.safetensors": b"x"}
        self.hub.repositories["org/two"] = {"a-Q6_K.gguf": FIRST, "a-Q5_0.gguf": FIRST}
        self.hub.repositories["org/gated"] = {"a-Q8_0.gguf": FIRST}
        self.hub.gated.add("org/gated")
        for text, words in (("hf:org/many", "several files fit Q4_K_M"), ("hf:org/many:Q4_K", "a-Q8_0.gguf"), ("hf:org/none", "no GGUF model"),
                            ("hf:org/many/x.gguf", "no file x.gguf"), ("hf:org/absent", "status 404"), ("hf:org/two", "name one: a-Q6_K.gguf, a-Q5_0.gguf"), ("hf:org/gated", "HF_TOKEN"),
                            (f"{self.hub.url}/files/no.gguf", "status 404")):
            self.assertIn(words, self.pull(text, status=1))
        for text in ("hf:org", "hf:/repo", "hf:org/", "hf:org/repo:", "hf:org/repo/x.bin", "hf:org/repo/../../x.gguf", "hf:org/re po", "hf:../x", "no-such-name", "ftp://x/y.gguf", "https://a@b/c.gguf"):
            self.pull(text, status=2)
        self.assertEqual(self.models(), [])
        self.assertIn("several files fit", self.pull("hf:org/many", status=1))

    def test_without_the_usual_quantisation(self):
        self.hub.repositories["org/two"] = {"a-Q5_0.gguf": SECOND, "a-q8_0.gguf": FIRST}
        self.pull("hf:org/two")
        self.assertEqual((self.models(), self.read("a-q8_0.gguf")), (["a-q8_0.gguf"], FIRST))

    def test_a_list_of_many_pages(self):
        self.hub.repositories["org/long"] = {f"{i:03}-Q5_0.gguf": FIRST for i in range(40)} | {"z-Q4_K_M.gguf": FIRST}
        self.hub.page_size = 7
        self.hub.faults = [{"place": "listing", "status": 500}, {"place": "listing", "cut": 1}, {"place": "listing", "status": 429, "headers": {"Retry_After": "0"}}]
        self.pull("hf:org/long")
        self.assertEqual(self.models(), ["z-Q4_K_M.gguf"])
        self.hub.faults = [{"place": "listing", "body": b'{"error": "no array"}'}]
        self.assertIn("not an array", self.pull("hf:org/long", status=1))
        self.hub.faults = [{"place": "listing", "body": b'[{"type": "file"'}]
        self.assertIn("cannot be read", self.pull("hf:org/long", status=1))

    def test_split_models_are_pulled_whole(self):
        parts = split_model()
        self.hub.repositories["org/split"] = parts | {"other-Q4_0-00001-of-00002.gguf": FIRST}
        self.hub.files = dict(parts)
        first, second = sorted(parts)
        self.hub.faults = [{"kind": "cut", "at": 1000}, {}, {"kind": "corrupt", "at": 5}]
        self.pull("hf:org/split:Q8_0", status=1)  # the second file is wrong
        self.assertEqual(self.models(), [])
        self.pull("hf:org/split:Q8_0")
        self.assertEqual({name: self.read(name) for name in self.models()}, parts)
        self.assertIn("split", self.salvo("info", "-m", "hf:org/split"))
        self.salvo("info", "-m", f"hf:org/split/{second}")
        self.pull(f"{self.hub.url}/files/{second}", "--name", "mine")
        self.assertEqual(self.read("mine-00001-of-00002.gguf"), parts[first])
        self.assertEqual(self.read("mine-00002-of-00002.gguf"), parts[second])
        self.salvo("rm", "--force", first)
        self.assertEqual(self.models(), ["mine-00001-of-00002.gguf", "mine-00002-of-00002.gguf"])
        self.assertIn("is missing", self.pull("hf:org/split:Q4_0", status=1))

    def test_names_stay_in_the_folder(self):
        for path in ("../evil.gguf", "/evil.gguf", "a/../../evil.gguf", "a//evil.gguf", "./evil.gguf"):
            self.hub.repositories["org/evil"] = {path: FIRST}
            self.assertIn("no GGUF model", self.pull("hf:org/evil", status=1))
        for path in (".evil.gguf", "a\\evil.gguf", "-evil.gguf", "e\x07vil.gguf", "e\x9b31mvil.gguf", "e\u202efugg.gguf", "e\u2066.gguf", "e\u2028.gguf", "e" * 201 + ".gguf"):
            self.hub.repositories["org/evil"] = {path: FIRST}
            self.assertIn("--name", self.pull("hf:org/evil", status=2))
        self.hub.files["x.gguf"] = FIRST
        for name in ("..%2fevil.gguf", "%2e%2e%2fevil.gguf", "%00evil.gguf", "..%5cevil.gguf"):
            self.hub.files[name] = FIRST
            self.pull(f"{self.hub.url}/files/{name}", status=2)
        for name in ("../evil", "/tmp/evil", "", ".gguf", "a/b"):
            self.pull(SOURCE, "--name", name, status=2)
        self.assertEqual(self.models(), [])
        self.pull("hf:org/evil", "--name", "good")
        self.assertEqual(self.models(), ["good.gguf"])


class Faults(Pulling):
    def ranges(self):
        return [headers.get("Range") for role, name, headers in self.hub.requests if role == "files" or "/files/" in name]

    def test_resumes_after_a_kill(self):
        self.hub.faults = [self.kill_at(HALF)]
        self.pull(SOURCE, status=-9)
        self.assertEqual(self.models(), [])
        self.pull(SOURCE)
        self.assertEqual(self.ranges(), [None, f"bytes={HALF}-"])
        self.assertEqual(self.read(), FIRST)
        self.assertEqual(self.notes(), [NAME + ".json"])

    def test_resumes_within_a_pull(self):
        self.hub.faults = [{"kind": "cut", "at": 100}, {"kind": "status", "status": 503}, {"kind": "status", "status": 429, "headers": {"Retry_After": "1"}},
                           {"kind": "stall", "at": 1000}, {"kind": "short", "less": 7}]
        self.pull(SOURCE, "--timeout", 2)
        self.assertEqual(self.read(), FIRST)
        self.assertEqual(self.ranges()[1:4], ["bytes=100-"] * 3)
        self.assertEqual(self.ranges()[4:], ["bytes=1100-", f"bytes={len(FIRST) - 7}-"])

    def test_gives_up_on_a_server_without_progress(self):
        self.hub.faults = [{"kind": "status", "status": 500}] * 20
        self.assertIn("status 500", self.pull(SOURCE, status=1))
        self.assertEqual(len(self.hub.faults), 14)
        self.hub.faults = [{"kind": "cut", "at": 100}] + [{"kind": "cut", "at": 0}] * 20
        self.pull(SOURCE, status=1)
        self.hub.faults = [{"kind": "status", "status": 429, "headers": {"Retry_After": "3600"}}]
        self.assertIn("too many requests", self.pull(SOURCE, status=1))
        self.assertEqual(self.models(), [])
        self.pull(SOURCE)

    def test_ranges_that_are_answered_wrongly(self):
        for kind in ("ignore range", "other range", "lie about range", "other total"):
            with self.subTest(kind):
                self.hub.faults = [{"kind": "cut", "at": HALF}, {"kind": kind}]
                self.pull(SOURCE)
                self.assertEqual(self.read(), FIRST)
                self.salvo("rm", "--force", NAME)
        self.hub.faults = [{"kind": "cut", "at": HALF}, {"kind": "status", "status": 416}]
        self.pull(SOURCE)
        self.assertEqual(self.read(), FIRST)

    def test_a_file_that_is_not_the_listed_one(self):
        for fault, words in (({"kind": "corrupt", "at": HALF}, "SHA-256"), ({"kind": "page"}, ""), ({"kind": "encoded"}, "compressed"),
                             ({"kind": "endless"}, "more than"), ({"place": "resolve", "sum": "0" * 64}, ""), ({"place": "resolve", "size": 5}, "")):
            with self.subTest(fault):
                self.hub.faults = [fault] * 9
                self.assertIn(words, self.pull(SOURCE, status=1))
                self.assertEqual(self.models(), [])
        self.hub.faults = []
        for lie, words in (({"size": 1 << 60}, "not enough space"), ({"lfs": {"oid": sha256(SECOND), "size": len(FIRST)}}, "differ from its list"),
                           ({"lfs": {"oid": sha256(FIRST), "size": 5}}, "differ from its list")):
            self.hub.lies = {NAME: lie | ({"lfs": None} if "lfs" not in lie else {})}
            self.assertIn(words, self.pull(SOURCE, status=1))
        self.hub.lies = {}
        self.hub.repositories["org/repo"][NAME] = b"GGUF" + FIRST[4:HALF]  # as listed, but no whole model
        self.assertIn("no usable model", self.pull(SOURCE, status=1))
        self.assertEqual((self.models(), self.notes()), ([], []))

    def test_redirects(self):
        self.hub.faults = [{"place": "resolve", "location": f"{self.hub.url}/org/repo/resolve/main/{NAME}"}] * 11
        self.assertIn("redirects", self.pull(SOURCE, status=1))
        for target in ("file:///etc/passwd", "ftp://localhost/x", "gopher://localhost/x"):
            self.hub.faults = [{"place": "resolve", "location": target}]
            self.pull(SOURCE, status=1)
        self.assertEqual(self.models(), [])

    def test_a_file_that_changes_on_the_server(self):
        def change():
            self.hub.repositories["org/repo"][NAME] = SECOND
        self.hub.change = change
        self.hub.faults = [{"kind": "cut", "at": HALF}, {"kind": "change"}]
        self.pull(SOURCE)
        self.assertEqual(self.read(), SECOND)
        self.assertEqual(self.notes(), [NAME + ".json"])
        self.hub.repositories["org/repo"][NAME] = FIRST
        self.hub.faults = [self.kill_at(HALF)]
        self.pull(SOURCE, status=-9)
        self.assertEqual(self.read(), SECOND)  # the old one stays until the new one is whole
        self.pull(SOURCE)
        self.assertEqual(self.read(), FIRST)

    def test_a_full_disk(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, HALF))
        error = self.pull(SOURCE, status=1, preexec_fn=limit)
        self.assertIn("are kept", error)
        self.assertEqual(self.models(), [])
        self.pull(SOURCE)
        self.assertEqual(self.ranges()[1], f"bytes={HALF}-")
        self.assertEqual(self.read(), FIRST)

    def test_damaged_parts_are_fetched_again(self):
        self.hub.faults = [{"kind": "cut", "at": HALF}] + [{"kind": "status", "status": 404}]
        self.pull(SOURCE, status=1)
        part = os.path.join(self.folder, ".salvo", next(note for note in self.notes() if note.endswith(".part")))
        with open(part, "r+b") as file:
            file.seek(100)
            file.write(b"damage")
        self.pull(SOURCE)
        self.assertEqual(self.read(), FIRST)

    def test_two_pulls_share_one_download(self):
        self.hub.faults = [{"kind": "hold", "at": HALF}]
        clients = [self.start("pull", SOURCE)]
        self.assertTrue(self.hub.held.wait(60))
        clients.append(self.start("pull", SOURCE))
        self.assertIn("waiting for another pull", clients[1].stderr.readline())
        self.hub.go_on.set()
        outputs = [client.communicate(timeout=60)[0] for client in clients]
        self.assertEqual([client.returncode for client in clients], [0, 0])
        self.assertIn("is there already", outputs[1])
        self.assertEqual(len(self.ranges()), 1)
        self.assertEqual((self.read(), self.notes()), (FIRST, [NAME + ".json"]))

    def test_a_model_that_is_removed_while_it_is_pulled(self):
        self.pull(SOURCE)
        self.hub.repositories["org/repo"][NAME] = SECOND
        self.hub.faults = [{"kind": "hold", "at": HALF}]
        clients = [self.start("pull", SOURCE)]
        self.assertTrue(self.hub.held.wait(60))
        self.salvo("rm", "--force", NAME)
        clients.append(self.start("pull", SOURCE))
        self.assertIn("waiting for another pull", clients[1].stderr.readline())
        self.hub.go_on.set()
        for client in clients:
            client.communicate(timeout=60)
            self.assertEqual(client.returncode, 0)
        self.assertEqual(self.read(), SECOND)

    def test_offline(self):
        self.environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
        self.assertIn("offline", self.pull(SOURCE, status=1))
        self.environment["HF_ENDPOINT"] = "http://no-such-host.invalid"
        self.assertIn("offline", self.pull(SOURCE, status=1))
        self.environment |= {"HF_ENDPOINT": self.hub.url, "HF_HUB_OFFLINE": "1"}
        self.assertIn("HF_HUB_OFFLINE", self.pull(SOURCE, status=1))
        self.environment |= {"HF_HUB_OFFLINE": "", "SALVO_CURL_LIBRARY": "none"}
        self.assertIn("need libcurl", self.pull(SOURCE, status=1))
        self.assertEqual(self.hub.requests, [])


class Urls(Pulling):
    def test_names_and_checksums(self):
        self.hub.files = {"a b.gguf": FIRST, "c.gguf": FIRST}
        url = self.hub.url + "/files/"
        self.pull(url + "a%20b.gguf?download=true")
        self.assertEqual(self.read("a b.gguf"), FIRST)
        self.pull(url + "c.gguf", "--sha256", sha256(FIRST), "--name", "mine.gguf")
        self.assertEqual(self.read("mine.gguf"), FIRST)
        self.assertIn("SHA-256", self.pull(url + "c.gguf", "--sha256", sha256(SECOND), "--name", "other", status=1))
        self.pull(url + "c.gguf", "--sha256", "12", status=2)
        self.assertEqual(self.models(), ["a b.gguf", "mine.gguf"])

    def test_resuming_needs_an_etag(self):
        url = self.hub.url + "/files/x.gguf"
        for etag, changes, wanted in ((True, False, f"bytes={HALF}-"), (True, True, f"bytes={HALF}-"), (False, False, None)):
            self.hub.files, self.hub.etag, self.hub.requests = {"x.gguf": FIRST}, etag, []
            self.hub.faults = [self.kill_at(HALF)]
            self.pull(url, status=-9)
            if changes:
                self.hub.files["x.gguf"] = SECOND
            self.assertEqual(self.kept(), HALF)
            self.pull(url)
            self.assertEqual(self.read("x.gguf"), SECOND if changes else FIRST)
            self.assertEqual(self.hub.requests[1][2].get("Range"), wanted)
            self.salvo("rm", "--force", "x")
        self.hub.faults = [{"kind": "no length"}]
        self.pull(url)

    def test_other_files_are_never_replaced(self):
        os.makedirs(self.folder)
        with open(self.path(), "wb") as file:
            file.write(SECOND)
        self.assertIn("another file", self.pull(SOURCE, status=1))
        self.assertEqual(self.read(), SECOND)
        self.hub.files = {NAME: SECOND}
        self.pull(f"{self.hub.url}/files/{NAME}", "--sha256", sha256(SECOND))
        self.assertIn("another file, pulled from http", self.pull(SOURCE, status=1))
        self.pull(SOURCE, "--name", "new")
        self.assertEqual(self.models(), ["new.gguf", NAME])

    def test_a_proxy(self):
        self.hub.files["x.gguf"] = FIRST
        self.environment["http_proxy"] = self.hub.url
        self.pull("http://hub.invalid/files/x.gguf", status=None)
        self.assertEqual([name for _, name, _ in self.hub.requests], ["/files/x.gguf"])


class Tokens(Pulling):
    @classmethod
    def setUpClass(cls):
        key, certificate = (os.path.join(work.name, name) for name in ("key.pem", "certificate.pem"))
        done = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                               "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], capture_output=True)
        if done.returncode:
            raise unittest.SkipTest("no openssl")
        cls.certificate = (certificate, key)

    def test_the_token_goes_to_the_hub_alone(self):
        self.environment |= {"HF_TOKEN": "hf_secret", "CURL_CA_BUNDLE": self.certificate[0]}
        self.pull(SOURCE)
        self.assertEqual([(role, headers.get("Authorization")) for role, _, headers in self.hub.requests],
                         [("hub", "Bearer hf_secret"), ("hub", "Bearer hf_secret"), ("files", None)])
        self.assertEqual(self.read(), FIRST)
        self.environment["HF_TOKEN"] = "a\r\nX-Evil: 1"
        self.salvo("rm", "--force", NAME)
        self.pull(SOURCE)
        self.assertNotIn("X-Evil", self.hub.requests[-2][2])

    def test_certificates_are_checked(self):
        self.assertIn("certificate", self.pull(SOURCE, status=1))
        self.environment["SSL_CERT_FILE"] = self.certificate[0]
        self.hub.faults = [{"place": "resolve", "location": self.hub.file_url.replace("https", "http")}]
        self.assertIn("not secure", self.pull(SOURCE, status=1))
        self.pull(SOURCE)


class PlainToken(Pulling):
    def test_no_token_over_plain_http(self):
        self.environment["HF_TOKEN"] = "hf_secret"
        self.pull(SOURCE)
        self.assertFalse([headers for _, _, headers in self.hub.requests if "Authorization" in headers])
        self.hub.gated.add("org/repo")
        self.assertIn("not sent over plain HTTP", self.pull(SOURCE, status=1))


class Commands(Pulling):
    def on_terminal(self, *arguments, answer):
        """Runs a command with a terminal and answers its question; its exit status and output."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(SALVO, [SALVO, *arguments], self.environment)
        text = b""
        while True:
            try:
                piece = os.read(terminal, 1000)
            except OSError:
                break
            if not piece:
                break
            text += piece
            if answer and b"[y/N]" in text:
                os.write(terminal, answer)
                answer = None
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode()

    def test_models_of_the_hub_in_other_commands(self):
        self.assertIn("--pull downloads it", self.salvo("info", "-m", SOURCE, status=1))
        self.assertEqual(self.hub.requests, [])
        self.assertEqual(self.on_terminal("info", "-m", SOURCE, answer=b"n\n")[0], 1)
        self.assertEqual(self.models(), [])
        status, text = self.on_terminal("info", SOURCE, answer=b"y\n")
        self.assertEqual((status, self.read()), (0, FIRST))
        self.assertIn("from hf:org/repo/" + NAME, text)
        self.salvo("rm", "--force", "tiny-Q8_0")
        self.salvo("info", "-hf", "org/repo:Q8_0", "--pull")
        before = len(self.hub.requests)
        for flags in (("-m", SOURCE), ("-hf", "org/repo"), ("--hf-repo=org/repo:q8_0",), ("-m", f"hf:org/repo/{NAME}"), ("-m", "tiny"), (SOURCE,)):
            self.assertIn("llama", self.salvo("info", *flags))
        self.assertEqual(len(self.hub.requests), before)
        self.assertIn("hf:org/repo:Q4_0 is not in", self.salvo("info", "-hf", "org/repo:Q4_0", status=1))
        self.assertIn("qwen3-0.6b", self.salvo("help", "pull"))
        self.assertIn("hf:Qwen/Qwen3-0.6B-GGUF", self.salvo("info", "-m", "qwen3-0.6b", status=1))
        self.assertIn("`salvo pull`", self.salvo("info", status=1))

    def test_list_and_show(self):
        self.pull(SOURCE)
        entry, = json.loads(self.salvo("list", "--json"))["models"]
        self.assertEqual((entry["source"], entry["sha256"], entry["file_type"], "last_use" in entry), (f"hf:org/repo/{NAME}", sha256(FIRST), "Q8_0", False))
        self.assertIn(f"hf:org/repo/{NAME}", self.salvo("list"))
        self.assertIn(sha256(FIRST), self.salvo("show", "tiny"))
        entry, = json.loads(self.salvo("list", "--json"))["models"]
        self.assertGreaterEqual(entry["last_use"], entry["pulled"])
        with open(self.path("esc\x1b[31m.gguf"), "wb") as file:
            file.write(b"no model")
        self.assertNotIn("\x1b", self.salvo("list"))
        os.remove(self.path("esc\x1b[31m.gguf"))
        with open(self.path(), "ab") as file:
            file.write(b"x")
        self.assertNotIn("source", json.loads(self.salvo("list", "--json"))["models"][0])  # another file now

    def test_rm(self):
        self.pull(SOURCE)
        self.assertIn("--force", self.salvo("rm", NAME, status=1))
        self.assertIn("whole name", self.salvo("rm", "--force", "tiny", status=2))
        self.salvo("rm", "--force", self.path(), status=2)
        self.salvo("rm", status=2)
        self.assertIn("no model", self.salvo("rm", "--force", "absent", status=1))
        status, text = self.on_terminal("rm", "tiny", answer=b"\n")
        self.assertEqual((status, self.models()), (1, [NAME]))
        self.assertIn(f"Remove {NAME}", text)
        self.assertEqual(self.on_terminal("rm", SOURCE, answer=b"y\n")[0], 0)
        self.assertEqual((self.models(), self.notes()), ([], []))

    def test_unfinished_downloads_are_listed_and_removed(self):
        parts = split_model()
        first, second = sorted(parts)
        self.hub.repositories["org/split"] = parts
        self.hub.faults = [{"kind": "cut", "at": HALF}, {"kind": "status", "status": 404}, {}, {"kind": "cut", "at": 20}, {"kind": "status", "status": 404}]
        self.pull(SOURCE, status=1)
        self.pull("hf:org/split", status=1)
        self.assertEqual(json.loads(self.salvo("list", "--json"))["unfinished"],
                         [{"name": first, "size": len(parts[first])}, {"name": second, "size": 20}, {"name": NAME, "size": HALF}])
        self.assertIn(f"{NAME} ", self.salvo("list"))
        self.assertIn("no model", self.salvo("rm", "--force", "tiny", status=1))
        status, text = self.on_terminal("rm", "tiny-q8_0", answer=b"y\n")
        self.assertEqual(status, 0)
        self.assertIn(f"Remove the unfinished {NAME}", text)
        self.assertEqual([entry["name"] for entry in json.loads(self.salvo("list", "--json"))["unfinished"]], [first, second])
        self.salvo("rm", "--force", first)
        self.assertEqual(self.notes(), [])
        self.assertIn("no models in", self.salvo("list"))

    def test_an_update_that_has_not_ended_is_removed_with_its_model(self):
        self.pull(SOURCE)
        self.hub.repositories["org/repo"][NAME] = SECOND
        self.hub.faults = [{"kind": "cut", "at": HALF}, {"kind": "status", "status": 404}]
        self.pull(SOURCE, status=1)
        with open(os.path.join(self.folder, ".salvo", NAME + ".json.abcdef"), "wb"):
            pass  # as of a pull that was killed
        self.salvo("rm", "--force", NAME)
        self.assertEqual((self.models(), self.notes()), ([], []))

    def test_a_download_that_runs_is_not_removed(self):
        self.hub.faults = [{"kind": "hold", "at": HALF}]
        client = self.start("pull", SOURCE)
        self.assertTrue(self.hub.held.wait(60))
        self.assertIn("is being pulled", self.salvo("rm", "--force", NAME, status=1))
        self.hub.go_on.set()
        client.communicate(timeout=60)
        self.assertEqual((client.returncode, self.read()), (0, FIRST))

    def test_ps(self):
        self.assertIn("XDG_RUNTIME_DIR", self.salvo("ps", status=1))
        self.environment["XDG_RUNTIME_DIR"] = self.cache
        self.assertIn("no server", self.salvo("ps"))
        os.makedirs(self.folder)
        os.mkfifo(os.path.join(self.cache, "salvo", "1.json"))
        subprocess.run([MAKE_WORDS, "llama-tiny", self.path("words.gguf")], check=True)
        for signal in ("terminate", "kill"):
            server = self.start("serve", "-m", "words", "--port", "0", "--backend", "cpu", "--alias", "me")
            lines = []
            for line in server.stderr:
                lines.append(line.strip())
                if "is ready" in line:
                    break
            if any("without libevent" in line for line in lines):
                server.communicate()
                return
            found, = json.loads(self.salvo("ps", "--json"))["servers"]
            address, = (line.removeprefix("listening on ") for line in lines if line.startswith("listening on "))
            self.assertEqual((found["pid"], found["address"], found["models"]), (server.pid, address, "me"))
            self.assertIn(f"{server.pid}", self.salvo("ps"))
            getattr(server, signal)()
            server.communicate(timeout=60)
            self.assertEqual(sorted(os.listdir(os.path.join(self.cache, "salvo"))), ([f"{server.pid}.json"] if signal == "kill" else []) + ["models"])
            self.assertEqual(json.loads(self.salvo("ps", "--json")), {"servers": []})
            self.assertEqual(os.listdir(os.path.join(self.cache, "salvo")), ["models"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
