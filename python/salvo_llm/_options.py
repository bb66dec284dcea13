"""The options of everything that generates, for type checkers; Model.stream describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class ParseOptions(TypedDict, total=False):
    """The options of Model.parse, whose schema is an argument."""
    max_tokens: int
    stop: str | Sequence[str]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last_n: int
    logprobs: int | None


class Options(ParseOptions, total=False):
    schema: Any
    regex: str | None
    grammar: str | None
