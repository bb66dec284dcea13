"""`salvo devices` lists every device, and names each backend that has none together with the reason."""
import json
import subprocess
import sys
import unittest

SALVO, MAKE_MODEL, MODEL = sys.argv[1], sys.argv[2], "devices-test.gguf"


def salvo(*arguments):
    return subprocess.run([SALVO, *arguments], capture_output=True, text=True, check=False)


class Devices(unittest.TestCase):
    def setUp(self):
        self.listed = json.loads(salvo("devices", "--json").stdout)

    def test_every_backend_is_named_with_its_devices(self):
        self.assertEqual([backend["name"] for backend in self.listed["backends"]], ["cuda", "vulkan", "metal", "cpu"])
        for backend in self.listed["backends"]:
            devices = [device for device in self.listed["devices"] if device["backend"] == backend["name"]]
            self.assertEqual(backend["devices"], len(devices))
            self.assertEqual("why" in backend, not devices)
            self.assertTrue(backend["built"] or not devices)

    def test_the_text_names_what_is_missing(self):
        text = salvo("devices").stdout
        for backend in self.listed["backends"]:
            missing = f"no {backend['name']} {'device' if backend['built'] else 'in this build'}: {backend.get('why')}\n"
            self.assertEqual(missing in text, "why" in backend, text)

    def test_asking_for_a_missing_backend_gives_the_same_reason(self):
        subprocess.run([MAKE_MODEL, "llama-tiny", "Q8_0", MODEL], check=True, capture_output=True)
        missing = [backend for backend in self.listed["backends"] if "why" in backend]
        self.assertTrue(missing, "CUDA has no device in this test")
        for backend in missing:
            result = salvo("eval", "-m", MODEL, "--backend", backend["name"], "--tokens", "1")
            self.assertEqual(result.returncode, 1)
            self.assertIn(backend["why"], result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
