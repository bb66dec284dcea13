"""Random faults of the hub: whatever happens, the model is whole or absent, and the next pull without faults completes it.
Arguments after the programs: number of faults, seed."""

import os
import random
import sys
import unittest

from pulling import FIRST, NAME, SECOND, SOURCE, Pulling

COUNT = int(sys.argv[4]) if len(sys.argv) > 4 else 100
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else 1


def random_fault(choose):
    at = choose.choice((0, 3, 4, choose.randrange(len(FIRST)), choose.randrange(len(FIRST))))
    kind = choose.choice(("cut", "cut", "cut", "kill", "kill", "corrupt", "ignore range", "other range", "lie about range", "other total", "short",
                          "page", "encoded", "endless", "no length", "change", "status", "status", "listing", "resolve", "damage"))
    if kind == "status":
        return {"kind": kind, "status": choose.choice((408, 416, 429, 500, 502, 503, 401, 404)), "headers": choose.choice(({}, {"Retry_After": "0"}))}
    if kind == "listing":
        return {"place": kind, **choose.choice(({"status": 500}, {"status": 401}, {"cut": 1}, {"body": b"[{"}, {"body": b"[]"}))}
    if kind == "resolve":
        return {"place": kind, **choose.choice(({"sum": "0" * 64}, {"size": 7}, {"status": 500}, {"location": "file:///etc/passwd"}))}
    return {"kind": kind, "at": at, "less": choose.randrange(1, 2000)}


class Random(Pulling):
    def check(self):
        if self.models():
            self.assertEqual(self.models(), [NAME])
            self.assertIn(self.read(), self.seen)

    def change(self):
        old = self.hub.repositories["org/repo"][NAME]
        self.hub.repositories["org/repo"][NAME] = SECOND if old == FIRST else FIRST
        self.seen = [FIRST, SECOND]

    def damage(self, choose):
        """Damages an unfinished file as a power cut may."""
        for note in self.notes() if os.path.isdir(self.folder) else ():
            path = os.path.join(self.folder, ".salvo", note)
            size = os.path.getsize(path)
            if note.endswith(".part") and size:
                with open(path, "r+b") as file:
                    file.seek(choose.randrange(size))
                    file.write(bytes(10))

    def test_whole_or_absent(self):
        choose, faults, outcomes = random.Random(SEED), 0, {}
        self.hub.change = self.change
        while faults < COUNT:
            self.seen = [self.hub.repositories["org/repo"][NAME]] + ([self.read()] if self.models() else [])
            self.hub.faults = [random_fault(choose) for _ in range(choose.randrange(1, 6))]
            while self.hub.faults:
                left = len(self.hub.faults)
                if self.hub.faults[0].get("kind") == "damage":
                    self.damage(choose)
                    self.hub.faults.pop(0)
                    self.hub.met += 1
                    continue
                if self.hub.faults[0].get("kind") == "change":
                    self.change()  # also between two pulls
                self.pull(SOURCE, status=None)
                outcome = self.hub.client.returncode
                self.assertIn(outcome, (0, 1, -9), self.error)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                self.check()
                if outcome == 0 and left == len(self.hub.faults):
                    self.hub.faults.pop(0)  # nothing was asked for
            faults, self.hub.faults = self.hub.met, []
            self.pull(SOURCE)
            self.assertEqual(self.read(), self.hub.repositories["org/repo"][NAME])
            self.assertFalse([note for note in self.notes() if not note.endswith((".json", ".used"))])
            if choose.random() < 0.7:
                self.salvo("rm", "--force", NAME)
        print(f"{faults} faults; exit statuses {outcomes}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
