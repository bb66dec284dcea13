"""jinja2 as transformers sets it up for chat templates, and the tool that renders here, for the tests beside it."""

import copy
import datetime
import functools
import json
import struct
import subprocess

import jinja2
import jinja2.ext
import jinja2.sandbox

WORDS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Generation(jinja2.ext.Extension):
    """{% generation %}, which only marks what the assistant wrote."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_write")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _write(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime.now().strftime(format)


def environment(kind=jinja2.sandbox.ImmutableSandboxedEnvironment):
    made = kind(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.filters["from_json"] = made.filters["fromjson"] = json.loads  # newer templates use both names
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


ENVIRONMENT = environment()
CHANGING = environment(jinja2.sandbox.SandboxedEnvironment)  # lists and dicts may be changed


@functools.lru_cache
def compiled(template, there=ENVIRONMENT):
    return there.from_string(template)


def render_there(template, request, there=ENVIRONMENT):
    """(text, None), or (None, the exception)."""
    variables = {**WORDS, "tools": None, "documents": None, "messages": [], "add_generation_prompt": True}
    variables.update(copy.deepcopy(request) if isinstance(request, dict) else {"messages": request})
    try:
        return compiled(template, there).render(**variables), None
    except Exception as problem:  # whatever Python raises
        return None, problem


def render_here(tool, cases):
    """For each (template, request) (text, None, marks), or (None, the error, None)."""
    data = bytearray()
    for template, request in cases:
        for part in (template, request if isinstance(request, str) else json.dumps(request, ensure_ascii=False)):
            part = part.encode()
            data += struct.pack("<I", len(part)) + part
    words = [f"{name}={text}" for name, text in WORDS.items()]
    done = subprocess.run([tool, *words], input=data, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    output, at, answers = done.stdout, 0, []
    for _ in cases:
        failed = output[at]
        parts = []
        at += 1
        for _ in range(2):
            size = struct.unpack_from("<I", output, at)[0]
            parts.append(output[at + 4:at + 4 + size])
            at += 4 + size
        text = parts[0].decode()
        answers.append((None, text, None) if failed else (text, None, parts[1]))
    assert at == len(output)
    return answers


def compare(tool, cases, there=ENVIRONMENT):
    """Prints where the two differ; the number of differences, and of texts that jinja2 did not refuse."""
    different = good = 0
    for (template, request), (text, error, _) in zip(cases, render_here(tool, cases)):
        expected, problem = render_there(template, request, there)
        good += problem is None
        if text == expected and (error is None) == (problem is None):
            continue
        different += 1
        print(f"--- template: {template!r}\n    request: {json.dumps(request)[:300]}")
        print(f"    jinja2: {expected!r} {problem!r}\n    here:   {text!r} {error!r}")
    return different, good
