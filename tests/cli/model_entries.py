"""Models of the tests with more metadata than they were made with."""

import struct


def with_entries(model, entries):
    """A model with more metadata: (key, type, bytes)."""
    added = b"".join(struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value for key, kind, value in entries)
    filler = 13 + (-len(added) - 13 - 1) % 32 + 1  # tensors stay where their alignment wants them
    added += struct.pack("<Q", filler - 13) + b"f" * (filler - 13) + struct.pack("<IB", 0, 0)
    assert len(added) % 32 == 0
    magic, version, tensors, count = struct.unpack("<4sIQQ", model[:24])
    return struct.pack("<4sIQQ", magic, version, tensors, count + len(entries) + 1) + added + model[24:]
