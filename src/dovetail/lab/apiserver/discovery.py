"""Discovery: which groups, versions and resources there are, in the aggregated and in the old form."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import negotiation, responses, status_errors
from dovetail.lab.apiserver.registry import ResourceType, Subresource
from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.status_errors import PlainError

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode

#: The order in which the real server lists its own groups; custom groups follow.
GROUPS = (
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sorts versions best first: stable before beta before alpha, newer before older, oddities last by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), "")


#: Groups of other API servers come after all others: their APIServices have the lowest priority.
_AGGREGATED = ("metrics.k8s.io",)
#: Of each version of a group the rows of its APIResourceList.
Extension = Mapping[str, Sequence[Json]]


class Discovery:
    """Answers of discovery, made anew when a custom resource or the APIService of an extension comes or goes."""

    def __init__(self, server: ServerState) -> None:
        self.server = server
        #: Groups that are answered beside this server, while their APIServices exist.
        self.extensions: dict[str, Extension] = {}
        self._made: dict[Any, tuple[Any, Any]] = {}

    def _served(self) -> dict[str, list[str]]:
        """The versions of extensions that have an APIService."""
        get = self.server.cluster.get
        served = {
            group: [v for v in versions if get("apiregistration.k8s.io", "apiservices", None, f"{v}.{group}")]
            for group, versions in self.extensions.items()
        }
        return {group: versions for group, versions in served.items() if versions}

    def _generation(self) -> Any:
        return self.server.registry.generation, self._served()

    def groups(self) -> dict[str, list[str]]:
        """Groups in order, each with its versions, best first."""
        versions_by_group: dict[str, set[str]] = {}
        for resource in self.server.registry.all():
            if resource.group:
                versions_by_group.setdefault(resource.group, set()).add(resource.version)
        groups = [group for group in GROUPS if group in versions_by_group]
        extensions = self._served()
        for group, versions in extensions.items():
            versions_by_group.setdefault(group, set()).update(versions)
        late = sorted(group for group in versions_by_group if group in _AGGREGATED or group in extensions)
        others = sorted(group for group in versions_by_group if group not in GROUPS and group not in late) + late
        return {group: sorted(versions_by_group[group], key=version_rank) for group in groups + others}

    def handle(self, request: Request, parts: list[str]) -> Response:
        """/api, /apis and what is directly below them."""
        if parts == ["api"] or parts == ["apis"]:
            return self.top(request, parts[0])
        if parts[0] == "api":
            if parts[1] != "v1":
                raise status_errors.no_resource()
            return self.cached(("resources", "", "v1"), lambda: self.resources("", "v1"), request)
        groups = self.groups()
        group = parts[1]
        if group not in groups:
            raise PlainError()
        if len(parts) == 2:
            return self.cached(("group", group), lambda: self.group(group, groups[group]), request)
        version = parts[2]
        if version not in groups[group]:
            if group in GROUPS:
                raise status_errors.no_resource()
            raise PlainError()
        return self.cached(("resources", group, version), lambda: self.resources(group, version), request)

    def cached(self, key: Any, make: Any, request: Request) -> Response:
        generation = self._generation()
        made = self._made.get(key)
        if made is None or made[0] != generation:
            made = self._made[key] = (generation, make())
        form = negotiation.negotiate(request.headers.get("accept", ""), True)
        return responses.value(made[1], 200, form)

    def top(self, request: Request, root: str) -> Response:
        header = request.headers.get("accept", "")
        for clause in negotiation.clauses(header):
            form, version = clause.parameters.get("as"), clause.parameters.get("v")
            wants_list = form == "APIGroupDiscoveryList" and clause.parameters.get("g") == "apidiscovery.k8s.io"
            if clause.media == "application/json" and wants_list and version == "v2":
                return self.aggregated(root, str(version), clause.parameters.get("profile", ""))
        if root == "api":
            return responses.value(self.core_versions(), 200, negotiation.negotiate(header, True, watchable=False))
        return self.cached(("groups",), self.group_list, request)

    def core_versions(self) -> Json:
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": self.server.address}
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}

    def group_list(self) -> Json:
        groups = [self._group(group, versions) for group, versions in self.groups().items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _group(self, group: str, versions: list[str]) -> Json:
        entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
        return {"name": group, "versions": entries, "preferredVersion": entries[0]}

    def group(self, group: str, versions: list[str]) -> Json:
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group, versions)}

    def of(self, group: str, version: str) -> list[ResourceType]:
        served = [r for r in self.server.registry.all() if (r.group, r.version) == (group, version)]
        return sorted(served, key=lambda resource: resource.plural)

    def resources(self, group: str, version: str) -> Json:
        rows: list[Json] = []
        for resource in self.of(group, version):
            rows.append(_row(resource))
            rows += _subresources(resource)
        rows += self.extensions.get(group, {}).get(version, ())
        head: Json = {"kind": "APIResourceList"}
        if group:
            head["apiVersion"] = "v1"
        name = f"{group}/{version}" if group else version
        return {**head, "groupVersion": name, "resources": rows}

    def aggregated(self, root: str, version: str, profile: str) -> Response:
        key = ("aggregated", root, version)
        generation = self._generation()
        made = self._made.get(key)
        if made is None or made[0] != generation:
            body = _encode(self._aggregated(root, version)) + b"\n"
            made = self._made[key] = (generation, (body, hashlib.sha512(body).hexdigest().upper()))
        body, etag = made[1]
        headers = {
            "content-type": f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList",
            "cache-control": "public",
            "etag": f'"{etag}"',
            "vary": "Accept",
        }
        return Response(status=200, headers=headers, body=body)

    def _aggregated(self, root: str, version: str) -> Json:
        if root == "api":
            items: list[Json] = [{"metadata": {}, "versions": [self._version("", "v1")]}]
        else:
            items = [
                {"metadata": {"name": group}, "versions": [self._version(group, version) for version in versions]}
                for group, versions in self.groups().items()
            ]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }

    def _version(self, group: str, version: str) -> Json:
        resources = [_discovered(resource) for resource in self.of(group, version)]
        resources += _aggregated_rows(self.extensions.get(group, {}).get(version, ()))
        return {"version": version, "resources": resources, "freshness": "Current"}


def _row(resource: ResourceType) -> Json:
    row: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _verbs(resource),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.storage_hash:
        row["storageVersionHash"] = resource.storage_hash
    return row


def _verbs(resource: ResourceType) -> list[str]:
    if resource.custom:
        return ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    return list(resource.verbs)


def _ordered(resource: ResourceType) -> list[tuple[str, Subresource]]:
    """Built-in subresources by name; custom ones as the definition brings them: status before scale."""
    subresources = list(resource.subresources.items())
    return subresources if resource.custom else sorted(subresources)


def _subresources(resource: ResourceType) -> list[Json]:
    rows: list[Json] = []
    for name, subresource in _ordered(resource):
        row: Json = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        if (subresource.group, subresource.version) != (resource.group, resource.version) and subresource.version:
            row["group"], row["version"] = subresource.group, subresource.version
        row["kind"] = subresource.kind
        row["verbs"] = list(subresource.verbs)
        rows.append(row)
    return rows


def _discovered(resource: ResourceType) -> Json:
    same = {"group": "", "version": "", "kind": resource.kind}
    if resource.custom:
        same = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: Json = {
        "resource": resource.plural,
        "responseKind": same,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    subresources: list[Json] = []
    for name, subresource in _ordered(resource):
        group, version = ("", "") if not resource.custom else (resource.group, resource.version)
        if (subresource.group, subresource.version) != (resource.group, resource.version) and subresource.version:
            group, version = subresource.group, subresource.version
        kind = {"group": group, "version": version, "kind": subresource.kind}
        subresources.append({"subresource": name, "responseKind": kind, "verbs": list(subresource.verbs)})
    if subresources:
        entry["subresources"] = subresources
    return entry


def _aggregated_rows(rows: Sequence[Json]) -> list[Json]:
    """The rows of an extension in the aggregated form: a subresource without its resource gets an empty one."""
    made: dict[str, Json] = {}
    for row in rows:
        name, _, subresource = row["name"].partition("/")
        scope = "Namespaced" if row["namespaced"] else "Cluster"
        kind = {"group": row.get("group", ""), "version": row.get("version", ""), "kind": row["kind"]}
        if not subresource:
            entry = made.setdefault(name, {"resource": name})
            entry |= {"responseKind": kind, "scope": scope, "singularResource": row["singularName"]}
            entry["verbs"] = list(row["verbs"])
            continue
        empty = {"group": "", "version": "", "kind": ""}
        parent = made.setdefault(
            name, {"resource": name, "responseKind": empty, "scope": scope, "singularResource": "", "verbs": None}
        )
        listed = parent.setdefault("subresources", [])
        listed.append({"subresource": subresource, "responseKind": kind, "verbs": list(row["verbs"])})
    return list(made.values())
