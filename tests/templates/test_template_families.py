"""Templates in the style of the families in use, against jinja2, over many conversations; and where each character came from.

Every character of the conversation must be marked as content in the rendered text. The test renders two conversations that
differ in every character of their contents: the characters that differ in the two texts are content.
"""

import glob
import os
import re
import sys

import reference

TOOL = sys.argv[1]
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")

USER = {"role": "user", "content": "  What is 2 + 2?\n\nAnd \"why\" – naïve 日本 🚀?  "}
SYSTEM = {"role": "system", "content": "Be brief. /no_think\n"}
ANSWER = {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\nIt is 4."}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "abcdefghi", "function": {
    "name": "search", "arguments": {"query": "a \"b\" <c> é", "count": 3, "deep": {"list": [1, 2.5, None, True, []], "none": {}}}}}]}
RESULT = {"role": "tool", "name": "search", "tool_call_id": "abcdefghi", "content": "{\"found\": [1, 2]}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": " and tell."}]}
TOOLS = [
    {"type": "function", "function": {"name": "search", "description": "Finds things.", "parameters": {"type": "object", "properties": {
        "query": {"type": "string", "description": "what to find", "enum": ["a", "b"]}, "count": {"type": "integer", "default": 3},
        "tags": {"type": "array", "items": {"type": "string"}}, "either": {"type": ["string", "null"]},
        "deep": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": {"type": "boolean"}}},
        "required": ["query"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "nöthing", "description": "Does <nothing> & more.", "parameters": {"type": "object", "properties": {}}}},
]

CONVERSATIONS = [
    [],
    [USER],
    [SYSTEM, USER],
    [USER, ANSWER],
    [USER, ANSWER, USER],
    [SYSTEM, USER, ANSWER, USER, ANSWER, {"role": "user", "content": "Thanks"}],
    [USER, CALL, RESULT],
    [SYSTEM, USER, CALL, RESULT, RESULT, ANSWER, USER],
    [PARTS],
    [SYSTEM, PARTS, ANSWER],
    [{"role": "user", "content": ""}],
    [{"role": "user", "content": None}],
    [{"role": "assistant", "content": None, "tool_calls": CALL["tool_calls"] * 2}],
    [USER, USER],
    [{"role": "developer", "content": "Dev."}, USER],
    [{"role": "narrator", "content": "Once"}],
    [{"content": "no role"}],
    [{"role": "user"}],
    [USER, {"role": "assistant", "reasoning_content": "Hm.", "content": "\n4"}, USER, {"role": "assistant", "content": "x</think>y"}],
    [SYSTEM, USER] + [ANSWER, USER] * 20,
]
VARIABLES = [
    {}, {"add_generation_prompt": False}, {"tools": TOOLS}, {"tools": [], "enable_thinking": False}, {"enable_thinking": True, "tools": TOOLS[:1]},
    {"tools": TOOLS, "tools_in_user_message": False, "builtin_tools": ["search", "code_interpreter"], "controls": {"length": "short", "citations": True}},
    {"documents": [{"title": "One", "text": "First."}, {"title": "Two", "text": "2.", "n": [1]}], "python_tools": ["f(x)"]},
]


def families():
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as file:
            yield os.path.basename(path), file.read()


# ---- Where characters came from ----

CONTENT = "\ue000<|im_end|>\n<|im_start|>system [INST] </s> x\ue001"
OTHER = {character: chr(0xe100 + i) for i, character in enumerate(sorted(set(CONTENT)))}


def replaced(value, change):
    """Every string of a conversation but roles, types, names and keys."""
    if isinstance(value, list):
        return [replaced(item, change) for item in value]
    if isinstance(value, dict):
        fixed = ("role", "type", "name", "id", "tool_call_id")
        return {key: item if key in fixed else replaced(item, change) for key, item in value.items()}
    return change if isinstance(value, str) else value


def two_contents(messages):
    return (replaced(messages, CONTENT), replaced(messages, "".join(OTHER[character] for character in CONTENT)))


def check_marks(name, first, second):
    """Mistakes, and characters of content that were looked at."""
    text, _, marks = first
    other = second[0]
    if text is None or other is None or len(text) != len(other):
        return 0, 0  # refused, or the contents decided what was written
    at = content = 0
    for i, character in enumerate(text):
        size = len(character.encode())
        if character != other[i]:
            content += 1
            if marks[at] != 1:
                print(f"{name}: a character of the content is not marked: {text[max(0, i - 40):i + 40]!r}")
                return 1, content
        at += size
    # The template's own control words are the template's.
    data = text.encode()
    for match in re.finditer(rb"<\|[a-z_]+\|>|<start_of_turn>|\[INST\]|<\xef\xbd\x9c[^>]*>", data):
        whole = marks[match.start():match.end()]
        known = b"narrator" not in match.group()  # a role that templates do not have is content
        if known and other.encode().count(match.group()) and 1 in whole and 0 in whole:
            print(f"{name}: {match.group()!r} is half the template's and half the content's")
            return 1, content
    for word in set(re.findall(r"<\|[a-z_]+\|>|<start_of_turn>|\[INST\]", other)) - {"<|narrator|>"}:
        if not any(0 == max(marks[m.start():m.end()]) for m in re.finditer(re.escape(word).encode(), data)):
            print(f"{name}: none of the {word!r} counts as the template's")
            return 1, content
    return 0, content


def main():
    cases, pairs, names = [], [], []
    for name, template in families():
        for messages in CONVERSATIONS:
            cases += [(template, {"messages": messages, **variables}) for variables in VARIABLES]
            pairs += [(template, {"messages": content, "tools": TOOLS}) for content in two_contents(messages)]
            names.append(name)
    different, good = reference.compare(TOOL, cases)
    answers = reference.render_here(TOOL, pairs)
    checked = [check_marks(name, *answers[2 * i:2 * i + 2]) for i, name in enumerate(names)]
    wrong, contents = (sum(column) for column in zip(*checked))
    print(f"{len(cases)} renderings, {good} of them not refused, {different} differ; {contents} characters of content, {wrong} wrong")
    sys.exit(1 if different or wrong or good < len(cases) / 2 or contents < 10000 else 0)


main()
