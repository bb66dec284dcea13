"""salvo for Python: language models from GGUF files.

    import salvo_llm
    with salvo_llm.load("SmolLM2-135M") as model:
        print(model.chat("Why is the sky blue?"))
"""

from ._library import SalvoError
from . import _library
from ._chat import Chat
from ._model import Model, load
from ._stream import AsyncStream, Stream

__all__ = ["AsyncStream", "Chat", "Model", "SalvoError", "Stream", "load"]
__version__ = _library.library.salvo_version().decode()
