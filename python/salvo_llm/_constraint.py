"""Answers that fit a JSON schema, a regular expression or a grammar."""

from __future__ import annotations

import ctypes as c
import json
from typing import Any

from . import _library as lib

_GBNF, _REGEX, _JSON_SCHEMA = 0, 1, 2


def only_declared(schema: Any) -> Any:
    """The schema without members that its objects do not declare, unless they say so themselves."""
    if isinstance(schema, list):
        return [only_declared(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: {name: only_declared(item) for name, item in value.items()} if key in ("properties", "$defs") else only_declared(value)
              for key, value in schema.items()}
    return {"additionalProperties": False, **closed} if "properties" in closed else closed


def schema_text(schema: Any) -> str:
    """JSON of a schema: a Pydantic model, of which answers have the declared fields alone; a dictionary; or JSON."""
    if hasattr(schema, "model_json_schema"):
        schema = only_declared(schema.model_json_schema())
    if not isinstance(schema, (str, dict, bool)):
        raise TypeError(f"schema must be a Pydantic model, a dictionary or JSON, not {schema!r}")
    return schema if isinstance(schema, str) else json.dumps(schema)


class Constraint:
    """A compiled grammar and the position of one answer in it."""

    def __init__(self, model: c.c_void_p, vocabulary: int, *, schema: Any = None, regex: str | None = None, grammar: str | None = None):
        self._grammar, self._matcher, self.message = c.c_void_p(), c.c_void_p(), ""
        given = [(kind, text) for kind, text in ((_JSON_SCHEMA, schema), (_REGEX, regex), (_GBNF, grammar)) if text is not None]
        if len(given) != 1:
            raise TypeError("only one of schema, regex and grammar can be given")
        kind, text = given[0]
        data = lib.text_bytes("the grammar", schema_text(text) if kind == _JSON_SCHEMA else text)
        try:
            lib.call("salvo_grammar_compile", model, kind, data, len(data), None, c.byref(self._grammar))
            lib.call("salvo_grammar_matcher_new", self._grammar, c.byref(self._matcher))
        except BaseException:
            self.close()
            raise
        self._words = (vocabulary + 31) // 32
        self.function = lib.MaskFunction(self._fill)

    def close(self) -> None:
        matcher, grammar = self._matcher, self._grammar
        self._matcher, self._grammar = c.c_void_p(), c.c_void_p()  # before they are freed: Ctrl-C may come between
        lib.library.salvo_grammar_matcher_free(matcher)
        lib.library.salvo_grammar_free(grammar)

    def _fill(self, _user: Any, tokens: Any, count: int, mask: Any, words: int) -> bool:
        """Called by the scheduler: the tokens that may follow. False ends the answer."""
        try:
            return self._next_mask(tokens, count, mask, words)
        except BaseException as error:  # there is no caller to raise it to; the reader of the answer does
            self.message = str(error) or type(error).__name__
            return False

    def _next_mask(self, tokens: Any, count: int, mask: Any, words: int) -> bool:
        steps = lib.library.salvo_grammar_matcher_steps(self._matcher)
        if steps > count:
            lib.call("salvo_grammar_matcher_rollback", self._matcher, steps - count)
        for i in range(steps, count):
            lib.call("salvo_grammar_matcher_accept", self._matcher, tokens[i])
        may_follow = (c.c_uint32 * 8)()
        lib.call("salvo_grammar_matcher_bytes", self._matcher, may_follow)
        if not any(may_follow):
            return False  # complete: nothing but an end token could follow
        lib.call("salvo_grammar_matcher_mask", self._matcher, mask, words)
        if any(c.string_at(mask, words * 4)):
            return True
        if not lib.library.salvo_grammar_matcher_complete(self._matcher):
            self.message = "no token of the vocabulary can continue the answer within the grammar"
        return False
