"""Messages to grammar_tool and its answers: each is a length of 4 bytes and so many bytes."""
import struct
import subprocess


def exchange(tool, messages):
    data = b"".join(struct.pack("<I", len(m)) + m for m in messages)
    done = subprocess.run([tool], input=data, capture_output=True, check=True)
    answers, at = [], 0
    while at < len(done.stdout):
        size = struct.unpack_from("<I", done.stdout, at)[0]
        answers.append(done.stdout[at + 4:at + 4 + size].decode())
        at += 4 + size
    return answers
