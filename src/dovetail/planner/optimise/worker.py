"""The optimiser in a child process, so that it does not delay watches, the lease or tier 1.

The child gets the compiled problem and reports every better packing. It is started when first needed, works on one
problem at a time, and is killed when it is late; then the best packing that it reported counts, or the given one.
It ends with its parent: when the parent's end of the pipe is closed, the child reads end of file and exits.
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

#: Seconds after its deadline before the child is killed.
_GRACE_S = 1.0
#: Bytes of the length in front of each frame.
_LENGTH_BYTES = 8
#: The first frame of a child: it is ready for a problem.
_READY = b"listening"


class Layout(msgspec.Struct):
    """A packing state as numbers: contents of each existing node, and of each new node with its offering."""

    there: dict[int, dict[int, int]]
    new_nodes: list[tuple[int, dict[int, int]]]
    left: dict[int, int]


class WorkerReport(msgspec.Struct):
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
        """The number of children that died or were late."""

    def start(self) -> None:
        """Start the child if there is none. It is ready after about a second; start it early so that no plan waits."""
        if self._child is not None and self._child.poll() is not None:
            self._discard_child()
        if self._child is None:
            self._child = (
                subprocess.Popen(  # in a session of its own: Ctrl-C goes to the parent, and the child ends with it
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
                )
            )
            self._ready = False
            atexit.register(self.close)

    def __call__(self, problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
        """The best packing that the child reported in time; the given one if it reported none."""
        end = stopwatch() + deadline - spent
        best = Improvement(packing)
        if not self._lock.acquire(timeout=max(0.0, end - stopwatch())):
            return best
        try:
            self.start()
            if not self._is_ready(end):
                return best
            spent = deadline - (end - stopwatch())
            task = (problem, packing.state.run, layout_of(packing), seed, deadline, spent)
            request = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
            for answer in self._answers(request, end + _GRACE_S):
                best = Improvement(packing_of(problem, answer.layout, packing.state.run), answer.bound)
                if answer.last:
                    return best
            self._discard_child()
        finally:
            self._lock.release()
        return best

    def _is_ready(self, until: float) -> bool:
        """Whether the child is ready by `until`. A child that needs longer keeps running, for the next problem."""
        if not self._ready:
            self._ready = next(self._frames(until), None) == _READY
        return self._ready

    def _answers(self, request: bytes, until: float) -> Iterator[WorkerReport]:
        """The child's answers, until it died or ran out of time."""
        try:
            _send(self._pipes()[1], request)
        except OSError:
            return
        for frame in self._frames(until):
            yield msgspec.msgpack.decode(frame, type=WorkerReport)

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
                while len(buffer) >= _LENGTH_BYTES and len(buffer) >= _LENGTH_BYTES + int.from_bytes(
                    buffer[:_LENGTH_BYTES], "big"
                ):
                    end = _LENGTH_BYTES + int.from_bytes(buffer[:_LENGTH_BYTES], "big")
                    yield buffer[_LENGTH_BYTES:end]
                    buffer = buffer[end:]

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._child is not None and self._child.stdout is not None and self._child.stdin is not None
        return self._child.stdout, self._child.stdin

    def _discard_child(self) -> None:
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
                    with suppress(BrokenPipeError):  # the child is dead: what is still in the buffer is not needed
                        pipe.close()


@cache
def apart() -> OptimiserProcess:
    """The child process that all planners of this process share."""
    return OptimiserProcess()


def _send(pipe: IO[bytes], body: bytes) -> None:
    pipe.write(len(body).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(body)
    pipe.flush()


def serve(source: IO[bytes], sink: IO[bytes], solve: Callable[..., Improvement] = better) -> None:
    """Run the child: read a problem and report improvements, until the input ends."""
    encode = msgspec.msgpack.Encoder().encode
    _send(sink, _READY)
    while len(head := source.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        body = source.read(int.from_bytes(head, "big"))
        # The bytes come from the parent process, over a private pipe.
        problem, run, layout, seed, deadline, spent = pickle.loads(body)

        def on_improvement(improvement: Improvement) -> None:
            _send(sink, encode(WorkerReport(layout_of(improvement.packing), improvement.bound)))

        start = packing_of(problem, layout, run._replace(meter=WorkMeter()))
        solution = solve(problem, start, seed, deadline, spent, on_improvement=on_improvement)
        _send(sink, encode(WorkerReport(layout_of(solution.packing), solution.bound, last=True)))


if __name__ == "__main__":
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(0)  # the parent was killed: nothing reads the answer in the buffer
