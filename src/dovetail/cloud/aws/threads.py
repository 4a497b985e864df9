"""Threads for blocking calls that do not keep the process alive.

A long poll of SQS lasts twenty seconds, and the interpreter waits for the threads of `ThreadPoolExecutor` before it
exits. These are daemon threads: what they still wait for is of no interest to a process that ends.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

_Work = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """Up to `count` threads, started when there is work for them."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the threads of {self._name} are shut down")
            if self._idle:
                self._idle -= 1
            elif self._threads < self._count:
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
            self._work.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Idle threads end; busy ones end with their call. Waits for none: `wait` is part of the interface alone."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del work, future, call
            with self._lock:
                if self._work.empty():
                    self._idle += 1
