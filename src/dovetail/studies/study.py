"""A study: many runs on all cores, kept by content, so that an interrupted one goes on where it was.

A run is known by the package's code and all its inputs. What was run before is read, whichever study it was for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cache, cached_property
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

import msgspec

import dovetail
from dovetail.clock import stopwatch
from dovetail.errors import UserError
from dovetail.language import message
from dovetail.studies.run import Run, run
from dovetail.studies.setups import Setup
from dovetail.studies.sources import WorkloadSource

OBJECT_STORE = "s3://"


class Task(msgspec.Struct, frozen=True):
    """One run that a study needs."""

    source: WorkloadSource
    setup: Setup
    seed: int

    def key(self) -> str:
        """The same for the same code and the same inputs, on any computer."""
        inputs = {
            "code": code_digest(),
            "workload": self.source.workload(self.seed).fingerprint(),
            "setup": self.setup,
            "seed": self.seed,
        }
        return hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()


class StudyProgress(msgspec.Struct, frozen=True):
    """How far a study is: runs done, all runs, and seconds that are probably left (None before the first is done)."""

    done: int
    total: int
    left_s: float | None


OnProgress = Callable[[StudyProgress], None]


@cache
def code_digest() -> str:
    """A digest of the package's version and of every module of it."""
    digest, root = hashlib.sha256(dovetail.__version__.encode()), Path(dovetail.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class RunCache(Protocol):
    """Keeps runs by their key."""

    def get(self, key: str) -> Run | None: ...

    def put(self, key: str, outcome: Run) -> None: ...


class FolderCache:
    """Runs as JSON files in a folder; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, key: str) -> Run | None:
        """A kept run; a file that cannot be read counts as absent."""
        if self._folder is None:
            return None
        try:
            return msgspec.json.decode((self._folder / f"{key}.json").read_bytes(), type=Run)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, key: str, outcome: Run) -> None:
        """Keep a run. Where the folder cannot be written, the study goes on without."""
        if self._folder is None:
            return
        target = self._folder / f"{key}.json"
        draft = target.with_name(f".{key}.{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(outcome))
            draft.replace(target)
        except OSError:
            return


class ObjectStoreCache:
    """Runs as objects of an S3 bucket; credentials and region are those of the environment."""

    def __init__(self, url: str) -> None:
        bucket, _, prefix = url.removeprefix(OBJECT_STORE).partition("/")
        if not bucket:
            raise UserError(message("{url}: write s3://BUCKET or s3://BUCKET/PREFIX", url=url))
        self._url, self._bucket, self._prefix = url, bucket, prefix.strip("/")

    def get(self, key: str) -> Run | None:
        """A kept run; an object that cannot be read as one counts as absent."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            body = self._client.get_object(Bucket=self._bucket, Key=self._name(key))["Body"].read()
            return msgspec.json.decode(body, type=Run)
        except msgspec.DecodeError:
            return None
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                return None
            raise UserError(f"{self._url}: {error}") from error
        except BotoCoreError as error:
            raise UserError(f"{self._url}: {error}") from error

    def put(self, key: str, outcome: Run) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.put_object(Bucket=self._bucket, Key=self._name(key), Body=msgspec.json.encode(outcome))
        except (BotoCoreError, ClientError) as error:
            raise UserError(f"{self._url}: {error}") from error

    def _name(self, key: str) -> str:
        return f"{self._prefix}/{key}.json" if self._prefix else f"{key}.json"

    @cached_property
    def _client(self) -> Any:
        import boto3

        return boto3.client("s3")


def cache_folder() -> Path:
    """Where runs are kept: the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail" / "studies"


def tasks(source: WorkloadSource, setups: Sequence[Setup], seeds: Sequence[int]) -> list[Task]:
    return [Task(source, setup, seed) for seed in seeds for setup in setups]


def execute(
    tasks: Sequence[Task], jobs: int, kept: RunCache, on_progress: OnProgress = lambda progress: None
) -> list[Run]:
    """The runs in the order of the tasks. Each is kept as soon as it is done."""
    keys = [task.key() for task in tasks]
    runs: dict[str, Run] = {}
    for key in keys:
        before = kept.get(key)
        if before is not None:
            runs[key] = before
    missing = {key: task for key, task in sorted(zip(keys, tasks, strict=True), key=_length) if key not in runs}
    began, cached = stopwatch(), len(keys) - len(missing)
    on_progress(StudyProgress(cached, len(keys), None))
    for done, (key, outcome) in enumerate(_outcomes(missing, jobs), 1):
        kept.put(key, outcome)
        runs[key] = outcome
        left_s = (stopwatch() - began) / done * (len(missing) - done)
        on_progress(StudyProgress(cached + done, len(keys), left_s))
    return [runs[key] for key in keys]


def _length(entry: tuple[str, Task]) -> bool:
    """Runs with a pod autoscaler first: they take two to three times as long, and the last one should be short."""
    setup = entry[1].setup
    return not (setup.hpa or setup.vpa)


def _outcomes(missing: dict[str, Task], jobs: int) -> Iterator[tuple[str, Run]]:
    """Runs as they are done, in processes of their own where several may run at once."""
    if jobs <= 1 or len(missing) <= 1:
        for key, task in missing.items():
            yield key, play(task)
        return
    pool = ProcessPoolExecutor(min(jobs, len(missing)), mp_context=get_context("spawn"), initializer=_end_with_parent)
    try:
        waiting: dict[Future[Run], str] = {pool.submit(play, task): key for key, task in missing.items()}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def play(task: Task) -> Run:
    """One run, in this process."""
    _prepare()
    return run(task.source.workload(task.seed), task.setup, task.seed)


def _end_with_parent() -> None:
    """A worker whose study was killed ends at once, instead of finishing runs that no process waits for."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)


def _prepare() -> None:
    """A simulation makes few cycles and many objects, and its parts log for operators."""
    import gc
    import logging

    import structlog

    from dovetail.kube import log

    gc.set_threshold(1_000_000, 50, 1000)
    log.silence()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
