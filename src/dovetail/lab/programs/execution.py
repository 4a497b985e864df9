"""Runs programs: one asyncio task for each container of a known image, with its own log, exit code and requests."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec
import structlog

from dovetail import language
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.controllers import logs
from dovetail.kube.client import Kube
from dovetail.kube.resources import PODS
from dovetail.kube.transport import Transport
from dovetail.lab.kubelet.process import ProcessLog
from dovetail.lab.kubelet.views import ContainerSpec, KubeletPod, Probe
from dovetail.lab.programs.context import (
    AGENT_URI,
    AGENT_URL,
    ROLE_ARN,
    ROLE_TOKEN_VARIABLE,
    PodAws,
    PodIdentity,
    Program,
    ProgramContext,
    ProgramExit,
    ServiceAccountTransport,
    debug_lines,
)
from dovetail.lab.programs.environment import environment, expand, mounted_files
from dovetail.lab.server import LabServer

ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"
AGENT_LABEL = "app.kubernetes.io/name=eks-pod-identity-agent"
SIGKILL_CODE = 137
#: The program whose task writes a line.
_writer: ContextVar[Callable[[str], None] | None] = ContextVar("writer", default=None)

#: Finds the program of a container and the command line after its name; None for a container that is modelled.
Find = Callable[[str, tuple[str, ...], tuple[str, ...]], tuple[Program, tuple[str, ...]] | None]


class _AgentPod(msgspec.Struct, frozen=True):
    class Status(msgspec.Struct, frozen=True):
        phase: str = ""

    status: Status = Status()


class ProgramHost(Protocol):
    """What a program is given of the lab it runs in."""

    clock: Clock
    chance: Chance
    transport: Transport
    server: LabServer | None

    @property
    def kube(self) -> Kube: ...


class ProgramProcess:
    """One run of a program."""

    def __init__(self, container: ContainerSpec, pod_ip: str, transport: ServiceAccountTransport) -> None:
        self.log = ProcessLog()
        self.exit_code: int | None = None
        self.ports: dict[int, Mapping[str, Callable[[], str]]] = {}
        self.task: asyncio.Task[None] | None = None
        self._container = container
        self.pod_ip = pod_ip
        self.transport = transport

    def probe_failure(self, probe: Probe) -> str:
        if probe.http_get is not None:
            return self._http_failure(probe.http_get)
        if probe.tcp_socket is not None:
            port = self._port(probe.tcp_socket.get("port"))
            return "" if port in self.ports else f"dial tcp {self.pod_ip}:{port}: connect: connection refused"
        return ""

    def _http_failure(self, http_get: Mapping[str, Any]) -> str:
        port, path = self._port(http_get.get("port")), str(http_get.get("path") or "/")
        address = f"{self.pod_ip}:{port}"
        if port not in self.ports:
            scheme = str(http_get.get("scheme") or "HTTP").lower()
            return f'Get "{scheme}://{address}{path}": dial tcp {address}: connect: connection refused'
        health = self.ports[port].get(path)
        if health is None:
            return "HTTP probe failed with statuscode: 404"
        return "HTTP probe failed with statuscode: 503" if health() else ""

    def _port(self, port: Any) -> int:
        """The number of a port that may be given by name."""
        if isinstance(port, int):
            return port
        named = {item.name: item.container_port for item in self._container.ports if item.name}
        return named.get(str(port), int(port) if str(port).isdigit() else 0)

    def terminate(self) -> None:
        if self.task is not None and self.exit_code is None:
            self.task.cancel()

    def kill(self) -> None:
        if self.exit_code is None:
            self.transport.is_cut = True
            self.exit_code = SIGKILL_CODE
            if self.task is not None:
                self.task.cancel()


class RunningPrograms:
    """A part of the lab: starts programs for its kubelets, ends them with the lab."""

    def __init__(self, lab: ProgramHost, find: Find) -> None:
        self._lab = lab
        self._find = find
        self._tasks: asyncio.TaskGroup | None = None
        self._runs = 0
        #: AWS as pods reach it, once there is one.
        self.aws: PodAws | None = None
        #: Set once AWS answers, in a lab that has one: pods that were kept from an earlier start wait for it.
        self.aws_ready: asyncio.Event | None = None

    async def run(self) -> None:
        with _log_lines_to_their_program(self._lab):
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.Event().wait()

    def runs(self, container: ContainerSpec) -> bool:
        return self._find(container.image, container.command, container.args) is not None

    def execute(
        self, pod: KubeletPod, container: ContainerSpec, pod_ip: str, ended: Callable[[], None]
    ) -> ProgramProcess:
        assert self._tasks is not None
        meta = pod.metadata
        transport = ServiceAccountTransport(self._lab.transport, meta.namespace, pod.spec.service_account_name)
        process = ProgramProcess(container, pod_ip, transport)
        self._runs += 1
        chance = self._lab.chance.child("program", meta.namespace, meta.name, str(self._runs))

        def write(text: str) -> None:
            process.log.write(self._lab.clock.now(), text)

        async def run() -> None:
            _writer.set(write)
            language.use("en")  # for this program alone: its events and logs are read by everyone
            code = SIGKILL_CODE
            try:
                program, context = await self._prepare(pod, container, process, chance, write)
                await program(context)
                code = 0
            except asyncio.CancelledError:
                code = 0  # SIGTERM: programs end well
            except Exception as problem:  # the end of this program, not of the lab
                code = _exit_code(problem, write)
            finally:
                if process.exit_code is None:
                    process.exit_code = code
                process.ports.clear()
                process.log.close()
                ended()

        process.task = self._tasks.create_task(run(), name=f"program {meta.namespace}/{meta.name}/{container.name}")
        return process

    async def _prepare(
        self,
        pod: KubeletPod,
        container: ContainerSpec,
        process: ProgramProcess,
        chance: Chance,
        write: Callable[[str], None],
    ) -> tuple[Program, ProgramContext]:
        """The program of a container's image, and what it is given: arguments, environment, files and identity."""
        meta = pod.metadata
        if self.aws_ready is not None:
            await self.aws_ready.wait()
        variables = await environment(self._lab.kube, pod, container, process.pod_ip)
        command = tuple(expand(word, variables) for word in container.command)
        arguments = tuple(expand(word, variables) for word in container.args)
        program = self._find(container.image, command, arguments)
        assert program is not None
        return program[0], ProgramContext(
            namespace=meta.namespace,
            pod=meta.name,
            node=pod.spec.node_name,
            service_account=pod.spec.service_account_name,
            arguments=program[1],
            environment=variables,
            transport=process.transport,
            clock=self._lab.clock,
            chance=chance,
            write=write,
            server=self._lab.server,
            aws=self.aws,
            identity=await self._identity(pod, variables),
            ports=process.ports,
            mounts=await mounted_files(self._lab.kube, pod, container),
        )

    async def _identity(self, pod: KubeletPod, variables: Mapping[str, str]) -> PodIdentity:
        """By what the container finds credentials: variables that EKS's webhook or the manifest gave it."""
        asks_agent = variables.get(AGENT_URI) == AGENT_URL
        return PodIdentity(
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            service_account=pod.spec.service_account_name or "default",
            node=pod.spec.node_name,
            role_arn=variables.get(ROLE_ARN, "") if variables.get(ROLE_TOKEN_VARIABLE) else "",
            asks_agent=asks_agent,
            has_agent=asks_agent and await self._has_agent(pod.spec.node_name),
        )

    async def _has_agent(self, node: str) -> bool:
        pods = await self._lab.kube.list(
            PODS, "kube-system", labels=AGENT_LABEL, fields=f"spec.nodeName={node}", type=_AgentPod
        )
        return any(pod.status.phase == "Running" for pod in pods.items)


def _exit_code(problem: Exception, write: Callable[[str], None]) -> int:
    """The exit code of a program that ended with an exception; its last lines say why."""
    leaves = list(_leaves(problem))
    exits = [leaf for leaf in leaves if isinstance(leaf, ProgramExit)]
    if exits:
        for leaf in exits:
            if str(leaf):
                write(str(leaf))
        return exits[0].code
    write("".join(traceback.format_exception(problem)))
    return 1


def _leaves(problem: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, and in groups within it."""
    if isinstance(problem, BaseExceptionGroup):
        for inner in problem.exceptions:
            yield from _leaves(inner)
    else:
        yield problem


@contextmanager
def _log_lines_to_their_program(lab: ProgramHost) -> Iterator[None]:
    """Lines of loggers that all programs of the process share go to the log of the program whose task writes them."""
    before = structlog.get_config()

    def write(line: str) -> None:
        writer = _writer.get()
        if writer is not None:
            writer(line)
        else:
            print(line, file=sys.stderr)

    def drop_chatter(_: Any, method: str, event: Any) -> Any:
        """Of the lab's own parts only errors are printed, and debug lines only of programs that ask for them."""
        is_chatter = _writer.get() is None and method not in ("error", "exception", "critical")
        if is_chatter or (method == "debug" and not debug_lines.get()):
            raise structlog.DropEvent
        return event

    logs.configure(lab.clock, "debug", write)
    structlog.configure(processors=[drop_chatter, *structlog.get_config()["processors"]])
    try:
        yield
    finally:
        structlog.configure(**before)
