"""`aws eks update-cluster-config` in the lab: how the API server is reached, and who may authenticate.

What a request leaves out stays as it is. An update is over at once.
"""

from __future__ import annotations

import ipaddress
import json
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from dovetail.lab.aws.account_state import AccountState
from dovetail.lab.aws.http_forms import Answer, Environ, body_of, json_answer

Json = dict[str, Any]

_CONFIG = re.compile(r"^/clusters/(?P<cluster>[^/]+)/update-config$")
_UPDATES = re.compile(r"^/clusters/(?P<cluster>[^/]+)/updates(?:/(?P<id>[^/]+))?$")
#: A mode is left for a later one alone.
MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
ACCESS_FIELDS = ("endpointPublicAccess", "endpointPrivateAccess", "publicAccessCidrs")
INVALID = "InvalidParameterException"


class UpdateRefused(ValueError):
    """What EKS says of an update that it does not make."""


class ClusterUpdates:
    """Served on EKS's paths, on the threads of the endpoint."""

    def __init__(self, account: AccountState, now: Callable[[], datetime]) -> None:
        self._account = account
        self._now = now
        self._lock = threading.Lock()
        self._updates: dict[str, dict[str, Json]] = {}

    def answer(self, environ: Environ) -> Answer | None:
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "")
        match = _CONFIG.match(path) or _UPDATES.match(path)
        if match is None:
            return None
        name = unquote(match["cluster"])
        cluster = self._account.backend("eks").clusters.get(name)
        if cluster is None:
            return json_answer(404, {"message": f"No cluster found for name: {name}."}, "ResourceNotFoundException")
        with self._lock:
            updates = self._updates.setdefault(name, {})
            if "id" not in match.groupdict():
                return self._update(cluster, updates, json.loads(body_of(environ) or b"{}"))
            if method != "GET":
                return None
            update = match["id"]
            if update is None:
                return json_answer(200, {"updateIds": list(updates)})
            made = updates.get(str(update))
            if made is None:
                return json_answer(404, {"message": f"No update found for ID: {update}"}, "ResourceNotFoundException")
            return json_answer(200, {"update": made})

    def _update(self, cluster: Any, updates: dict[str, Json], body: Mapping[str, Any]) -> Answer:
        try:
            kind, values = _changed(cluster, body)
        except UpdateRefused as refusal:
            return json_answer(400, {"message": str(refusal)}, INVALID)
        made: Json = {
            "id": str(uuid.UUID(int=len(updates) + 1)),
            "status": "Successful",
            "type": kind,
            "params": [{"type": name, "value": text} for name, text in values.items()],
            "createdAt": self._now().timestamp(),
            "errors": [],
        }
        updates[made["id"]] = made
        return json_answer(200, {"update": made})


def _changed(cluster: Any, body: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Change the cluster; the kind of the update, and its parameters as text."""
    parts = [name for name in ("resourcesVpcConfig", "accessConfig", "logging") if body.get(name)]
    if len(parts) != 1:
        raise UpdateRefused("Exactly one type of update is made in a request.")
    if parts == ["accessConfig"]:
        return "AccessConfigUpdate", _change_mode(cluster, str(body["accessConfig"].get("authenticationMode", "")))
    if parts == ["logging"]:
        cluster.logging = body["logging"]
        return "LoggingUpdate", {"ClusterLogging": json.dumps(body["logging"])}
    return _change_network(cluster, body["resourcesVpcConfig"])


def _change_mode(cluster: Any, mode: str) -> dict[str, str]:
    former = str((getattr(cluster, "access_config", None) or {}).get("authenticationMode") or MODES[0])
    if mode not in MODES or MODES.index(mode) < MODES.index(former):
        raise UpdateRefused(f"Unsupported authentication mode update from {former} to {mode}")
    if mode == former:
        raise UpdateRefused(f"Unsupported authentication mode update from {former} to {mode}")
    cluster.access_config = {"authenticationMode": mode}
    return {"AuthenticationMode": mode}


def _change_network(cluster: Any, change: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    former: Json = cluster.resources_vpc_config
    network = {"endpointPublicAccess": True, "endpointPrivateAccess": False, **former, **change}
    if not network["endpointPublicAccess"] and not network["endpointPrivateAccess"]:
        raise UpdateRefused("Private and public endpoint access cannot be false")
    for text in change.get("publicAccessCidrs") or ():
        try:
            ipaddress.ip_network(text)
        except ValueError as problem:
            raise UpdateRefused(f"The following CIDRs are invalid: {text}") from problem
    if all(former.get(name) == value for name, value in change.items()):
        raise UpdateRefused("Cluster is already at the desired configuration")
    cluster.resources_vpc_config = network
    kind = "EndpointAccessUpdate" if set(change) & set(ACCESS_FIELDS) else "VpcConfigUpdate"
    return kind, {name[:1].upper() + name[1:]: json.dumps(value) for name, value in change.items()}
