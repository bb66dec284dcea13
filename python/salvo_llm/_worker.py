"""Runs a call of the library in a thread, and passes its text on as it comes. The caller's thread stays free for signals, so
that Ctrl-C cancels at once."""

from __future__ import annotations

import codecs
import ctypes as c
import queue
import threading
from collections.abc import Callable, Iterator

from . import _library as lib

_END = object()


class Call:
    """Calls of the library with one session, which another thread may cancel."""

    def __init__(self, session: c.c_void_p):
        self._session, self._lock = session, threading.Lock()
        self._runs = self._wanted = self._sent = False

    def cancel(self) -> None:
        with self._lock:
            self._wanted = True
            if self._runs:
                lib.library.salvo_session_cancel(self._session)
                self._sent = True

    def __enter__(self) -> None:
        with self._lock:
            if self._wanted:
                raise lib.SalvoError("cancelled")
            self._runs = True

    def __exit__(self, *_) -> None:
        with self._lock:
            self._runs = False
            if self._sent:
                self._settle()

    def _settle(self) -> None:
        """A cancellation that came too late would stop the next call: this is that call, of one token that is removed again."""
        end = max(lib.library.salvo_session_position(self._session), 1) - 1
        lib.library.salvo_session_rollback(self._session, end)
        lib.library.salvo_session_feed(self._session, (c.c_int32 * 1)(0), 1)
        lib.library.salvo_session_rollback(self._session, end)


def stream(start: Callable[[lib.TextFunction], None], call: Call) -> Iterator[str]:
    """Yields the pieces of text that `start` passes to its callback. An iterator that is closed or interrupted cancels the call
    and waits for its end."""
    pieces: queue.SimpleQueue = queue.SimpleQueue()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @lib.TextFunction
    def on_text(_user, data, size):
        pieces.put(c.string_at(data, size))
        return True

    def run():
        try:
            start(on_text)
            pieces.put(_END)
        except BaseException as error:  # raised again in the caller's thread
            pieces.put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    has_ended = False
    try:
        while (piece := pieces.get()) is not _END:
            if isinstance(piece, BaseException):
                has_ended = True
                raise piece
            if text := decoder.decode(piece):
                yield text
        has_ended = True
        if text := decoder.decode(b"", True):
            yield text
    finally:
        if not has_ended:
            call.cancel()
        thread.join()
