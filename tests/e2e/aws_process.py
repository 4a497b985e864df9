"""The aws command in one process for many calls: its start takes longer than what it is asked to do.

`python -m tests.e2e.aws_process` prints its port and answers each connection by running the command's own driver;
`FUNCTION` is the shell function that stands for `aws`.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Arguments go as one NUL-terminated list after the folder; what comes back is the status, stdout and stderr in files.
FUNCTION = r"""
aws() {
  local answer status
  answer=$(mktemp -d)
  exec 9<>/dev/tcp/127.0.0.1/$AWS_PROCESS_PORT
  printf '%s\0' "$answer" "$PWD" "$@" $'\x04' >&9
  read -r status <&9
  exec 9>&-
  cat "$answer/stderr" >&2
  cat "$answer/stdout"
  rm -r "$answer"
  return "$status"
}
export -f aws
"""
END = "\x04"


def run(folder: str, arguments: list[str]) -> tuple[int, bytes, bytes]:
    """One call of the command: its status and what it printed."""
    from awscli.clidriver import create_clidriver  # type: ignore[import-untyped]

    os.chdir(folder)
    kept = sys.stdout, sys.stderr
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in kept]
    sys.stdout, sys.stderr = streams
    try:
        status = create_clidriver().main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout, sys.stderr = kept
    printed = [stream.buffer.getvalue() for stream in streams]
    return status, printed[0], printed[1]


def answer(connection: socket.socket) -> None:
    received = b""
    while not received.endswith(f"{END}\0".encode()):
        received += connection.recv(65536)
    into, folder, *arguments, _, _ = received.decode().split("\0")
    status, stdout, stderr = run(folder, arguments)
    Path(into, "stdout").write_bytes(stdout)
    Path(into, "stderr").write_bytes(stderr)
    connection.sendall(f"{status}\n".encode())


@contextmanager
def started(environment: dict[str, str]) -> Iterator[None]:
    """The process with this environment, to which its port is added, while the block runs."""
    command = [sys.executable, "-m", "tests.e2e.aws_process"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        environment["AWS_PROCESS_PORT"] = process.stdout.readline().strip()
        try:
            yield
        finally:
            process.kill()


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                answer(connection)


if __name__ == "__main__":
    main()
