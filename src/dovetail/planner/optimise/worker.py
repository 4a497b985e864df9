"""The optimiser in a process of its own, so that no pod waits for it: not the watches, not the lease, not tier 1.

The child gets the compiled problem and reports of every better packing it finds. It is started when first needed, asked
one thing at a time, and thrown away when it dies or is late; then the best it had reported counts, or what it was
given.
It ends with its parent: when no pod holds the other end of its input, there is nothing more to read.
"""

from __future__ import annotations

import atexit
import os
import pickle
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import IO

import msgspec

from dovetail.clock import stopwatch
from dovetail.planner.optimise.improve import Improvement, better
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.run import PackingRun, WorkMeter
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.compile import Problem

#: How much longer than its deadline the child may take before it is relaxed.
_GRACE = 1.0
_HEAD = 8
_HELLO = b"listening"


class Layout(msgspec.Struct):
    """A packing state as numbers: what is on each existing node, and on each to launch with its offering."""

    there: dict[int, dict[int, int]]
    new_nodes: list[tuple[int, dict[int, int]]]
    left: dict[int, int]


class Answer(msgspec.Struct):
    """What the child reports; `last` when it is done."""

    layout: Layout
    bound: float | None
    last: bool = False


def layout_of(packing: Packing) -> Layout:
    state = packing.state
    there = {node: dict(state.contents[node]) for node in range(state.existing) if state.contents[node]}
    new_nodes = [(int(state.offering[node]), dict(state.contents[node])) for node in state.new_nodes()]
    return Layout(there, new_nodes, dict(packing.left))


def packing_of(problem: Problem, layout: Layout, run: PackingRun) -> Packing:
    """The packing that a layout describes."""
    state = PackingState(problem, run)
    places = list(layout.there.items())
    places += [(state.open(offering), contents) for offering, contents in layout.new_nodes]
    for place, contents in places:
        for number, count in contents.items():
            state.put(problem.placement_requests[number], place, count)
    return Packing(state, dict(layout.left))


class OptimiserProcess:
    """An optimiser (see `better`) that lives in a child process. Close it, or let it go with the program."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "dovetail.planner.optimise.worker")) -> None:
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._lock = Lock()
        self.lost = 0
        """How often a child died or was late."""

    def start(self) -> None:
        """Start the child if there is none: it takes a second until it listens, which no pod need wait for."""
        if self._child is not None and self._child.poll() is not None:
            self._give_up()
        if self._child is None:
            self._child = subprocess.Popen(  # in a session of its own: Ctrl-C is for the parent, with whom it ends
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            self._ready = False
            atexit.register(self.close)

    def __call__(self, problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
        """The best that the child reported in time; what it was given, where it reported nothing."""
        end = stopwatch() + deadline - spent
        best = Improvement(packing)
        if not self._lock.acquire(timeout=max(0.0, end - stopwatch())):
            return best
        try:
            self.start()
            if not self._listens(end):
                return best
            spent = deadline - (end - stopwatch())
            task = (problem, packing.state.run.baseline, layout_of(packing), seed, deadline, spent)
            request = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
            for answer in self._asked(request, end + _GRACE):
                best = Improvement(packing_of(problem, answer.layout, packing.state.run), answer.bound)
                if answer.last:
                    return best
            self._give_up()
        finally:
            self._lock.release()
        return best

    def _listens(self, until: float) -> bool:
        """Whether the child says it is there. One that needs longer is not asked this time, and left to get ready."""
        if not self._ready:
            self._ready = next(self._frames(until), None) == _HELLO
        return self._ready

    def _asked(self, request: bytes, until: float) -> Iterator[Answer]:
        """The child's answers, until it died or ran out of time."""
        try:
            _send(self._pipes()[1], request)
        except OSError:
            return
        for frame in self._frames(until):
            yield msgspec.msgpack.decode(frame, type=Answer)

    def _frames(self, until: float) -> Iterator[bytes]:
        source, _ = self._pipes()
        with selectors.DefaultSelector() as ready:
            ready.register(source, selectors.EVENT_READ)
            buffer = b""
            while ready.select(max(0.0, until - stopwatch())):
                more = os.read(source.fileno(), 1 << 20)
                if not more:
                    return
                buffer += more
                while len(buffer) >= _HEAD and len(buffer) >= _HEAD + int.from_bytes(buffer[:_HEAD], "big"):
                    end = _HEAD + int.from_bytes(buffer[:_HEAD], "big")
                    yield buffer[_HEAD:end]
                    buffer = buffer[end:]

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._child is not None and self._child.stdout is not None and self._child.stdin is not None
        return self._child.stdout, self._child.stdin

    def _give_up(self) -> None:
        self.lost += 1
        self.close()

    def close(self) -> None:
        """End the child, whatever it is doing."""
        child, self._child = self._child, None
        atexit.unregister(self.close)
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # what was not yet written to a dead child is of no use
                        pipe.close()


@cache
def apart() -> OptimiserProcess:
    """The one child of this process."""
    return OptimiserProcess()


def _send(pipe: IO[bytes], body: bytes) -> None:
    pipe.write(len(body).to_bytes(_HEAD, "big"))
    pipe.write(body)
    pipe.flush()


def serve(source: IO[bytes], sink: IO[bytes], solve: Callable[..., Improvement] = better) -> None:
    """The child's life: read a problem, tell of what is found, until there is no pod to read from."""
    encode = msgspec.msgpack.Encoder().encode
    _send(sink, _HELLO)
    while len(head := source.read(_HEAD)) == _HEAD:
        body = source.read(int.from_bytes(head, "big"))
        # The bytes are our own parent's, over a pipe of its own.
        problem, baseline, layout, seed, deadline, spent = pickle.loads(body)

        def on_improvement(improvement: Improvement) -> None:
            _send(sink, encode(Answer(layout_of(improvement.packing), improvement.bound)))

        start = packing_of(problem, layout, PackingRun(WorkMeter(), baseline))
        solution = solve(problem, start, seed, deadline, spent, on_improvement=on_improvement)
        _send(sink, encode(Answer(layout_of(solution.packing), solution.bound, last=True)))


if __name__ == "__main__":
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(0)  # the parent was killed: an answer is left in the buffer, and nothing reads it
