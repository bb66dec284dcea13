"""A plug-in for `llm` 0.36 or later (https://llm.datasette.io): `llm -m salvo "Why is the sky blue?"`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, Optional

import llm
from llm.parts import TextPart
from pydantic import Field

from ._chat import Chat
from ._constraint import only_declared
from ._model import Model, load, models_folder

_DEFAULT = "SmolLM2-135M"
_loaded: dict[str, Model] = {}


def _model(name: str) -> Model:
    """Models stay loaded: a conversation goes on where it stopped."""
    if name not in _loaded:
        _loaded[name] = load(name)
    return _loaded[name]


class Options(llm.Options):
    """The sampler's settings and limits of an answer."""
    max_tokens: Optional[int] = Field(default=None, description="tokens of the answer at most")
    temperature: Optional[float] = Field(default=None, description="0: always the most likely token")
    top_k: Optional[int] = Field(default=None, description="the number of tokens to choose from; 0: all")
    top_p: Optional[float] = Field(default=None, description="the probability that these have together")
    min_p: Optional[float] = Field(default=None, description="smallest probability, relative to the most likely token's")
    seed: Optional[int] = Field(default=None, description="the same seed gives the same text")


class _Shared:
    can_stream = True
    supports_schema = True
    Options = Options

    def __init__(self, model_id: str, name: str):
        self.model_id, self._name = model_id, name

    def _begin(self, prompt: llm.Prompt) -> tuple[Chat, str, dict[str, Any]]:
        """The conversation up to the last message, that message, and options."""
        messages = [{"role": message.role, "content": "".join(part.text for part in message.parts if isinstance(part, TextPart))}
                    for message in prompt.messages]
        if not messages or messages[-1]["role"] != "user":
            raise llm.ModelError("the last message is not one of the user")
        options = {name: value for name, value in prompt.options if value is not None}
        if prompt.schema is not None:
            options["schema"] = only_declared(prompt.schema)
        return _model(self._name).conversation(messages=messages[:-1]), messages[-1]["content"], options


class Salvo(_Shared, llm.Model):
    """A model of salvo."""

    def execute(self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any = None) -> Iterator[str]:
        chat, text, options = self._begin(prompt)
        with chat, chat.stream(text, **options) as pieces:
            yield from pieces
            response.set_usage(input=pieces.prompt_tokens, output=len(pieces.tokens))


class AsyncSalvo(_Shared, llm.AsyncModel):
    """The same for asyncio."""

    async def execute(self, prompt: llm.Prompt, stream: bool, response: llm.AsyncResponse, conversation: Any = None) -> AsyncIterator[str]:
        chat, text, options = self._begin(prompt)
        with chat:
            async for piece in chat.astream(text, **options):
                yield piece


@llm.hookimpl
def register_models(register: Any) -> None:
    """`salvo` is $SALVO_MODEL or the default model; `salvo/NAME` is a model of the models folder."""
    default = os.environ.get("SALVO_MODEL") or _DEFAULT
    register(Salvo("salvo", default), AsyncSalvo("salvo", default))
    for file in sorted(models_folder().glob("*.gguf")):
        register(Salvo(f"salvo/{file.stem}", str(file)), AsyncSalvo(f"salvo/{file.stem}", str(file)))
