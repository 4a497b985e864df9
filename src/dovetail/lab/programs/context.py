"""What a program is given: the command line, environment, service account and network of its container."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import Disconnected
from dovetail.kube.ratelimit import RateLimitedTransport
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.server import LabServer

#: Whether the debug lines of shared loggers belong into the log of the program of this task.
debug_lines: ContextVar[bool] = ContextVar("debug_lines", default=False)
#: Where the agent of Pod Identity answers on a node.
AGENT_URL = "http://169.254.170.23/v1/credentials"
#: What EKS's webhook gives a pod: by a role of its service account, or by the agent.
ROLE_ARN, ROLE_TOKEN_VARIABLE = "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"
AGENT_URI, AGENT_TOKEN_VARIABLE = "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
ROLE_TOKEN_FILE = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
AGENT_TOKEN_FILE = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token"
#: Answers one path of a port: why the program is not well, or nothing.
Health = Callable[[], str]


class ProgramExit(Exception):
    """The program ends with this exit code; the message is its last line."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code


class PodIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What AWS credentials of a pod depend on."""

    namespace: str
    pod: str
    service_account: str
    node: str
    #: The role that the container's variables name (IRSA).
    role_arn: str = ""
    #: Whether the variables name the agent of Pod Identity, which gives the role of the association.
    asks_agent: bool = False
    #: Whether that agent runs on the node.
    has_agent: bool = False


class PodAws(Protocol):
    """AWS as a pod reaches it."""

    url: str
    region: str

    def session(self, identity: PodIdentity) -> Any:
        """A boto3 session with the credentials that the pod gets: those of its role, or of its node."""
        ...


class ServiceAccountTransport:
    """Requests of a pod: made as its service account, and none once its process is killed."""

    def __init__(self, inner: Transport, namespace: str, name: str) -> None:
        self._inner = inner
        self._headers = {"impersonate-user": f"system:serviceaccount:{namespace}:{name}"}
        self.is_cut = False

    async def send(self, request: Request) -> Response:
        if self.is_cut:
            raise Disconnected("the process was killed")
        return await self._inner.send(msgspec.structs.replace(request, headers={**request.headers, **self._headers}))

    async def close(self) -> None:
        """The transport belongs to the lab."""


class ProgramContext(msgspec.Struct, kw_only=True):
    """One run of a program in a container."""

    namespace: str
    pod: str
    node: str
    service_account: str
    #: The command line after the name of the program.
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    transport: ServiceAccountTransport
    clock: Clock
    chance: Chance
    write: Callable[[str], None]
    #: The API server, where it is in this process.
    server: LabServer | None = None
    aws: PodAws | None = None
    identity: PodIdentity | None = None
    ports: dict[int, Mapping[str, Health]] = {}
    #: Where volumes are mounted, and the files in them: those of ConfigMaps.
    mounts: Mapping[str, Mapping[str, str]] = {}

    def client(self, manager: str, rate: float | None = None, burst: float = 1.0) -> Kube:
        """A client of the API server as the pod's service account; `rate` requests a second after the first `burst`."""
        transport: Transport = self.transport
        if rate is not None:
            transport = RateLimitedTransport(transport, self.clock, rate, burst)
        chance = self.chance.child("client", manager)
        return Kube(transport, self.clock, chance=chance, manager=manager, user_agent=manager)

    def serve(self, port: int, paths: Mapping[str, Health]) -> None:
        """Answer the probes of a port."""
        if port:
            self.ports[port] = paths

    def aws_session(self) -> Any:
        """A session of boto3 with the pod's credentials."""
        if self.aws is None or self.identity is None:
            raise ProgramExit(2, "Error: this lab has no AWS; start it without --no-autoscaler")
        return self.aws.session(self.identity)


#: Runs until it is cancelled (SIGTERM) or has ended by itself.
Program = Callable[[ProgramContext], Awaitable[None]]
