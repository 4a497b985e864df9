"""A pod as the API server stores it, where manifests and templates leave unsaid what decides where it can run.

Limits stand in for requests that are not given, of containers and of the pod as a whole, and on the host's network
every port of a container is a port of the host.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.model.pods import Container, PodSpec, ResourceRequirements


def stored(spec: PodSpec) -> PodSpec:
    """The same object if it says everything already."""
    containers = tuple(_stored(container, spec.host_network) for container in spec.containers)
    inits = tuple(_stored(init_container, spec.host_network) for init_container in spec.init_containers)
    whole = spec.resources
    if whole is not None and whole.limits:
        said = {name for container in (*containers, *inits) for name in container.resources.requests}
        whole = _asking(whole, said)
    was = (*spec.containers, *spec.init_containers, spec.resources)
    if all(new is other for new, other in zip((*containers, *inits, whole), was, strict=True)):
        return spec
    return replace(spec, containers=containers, init_containers=inits, resources=whole)


def _stored(container: Container, on_host: bool) -> Container:
    resources = _asking(container.resources, set())
    if on_host and any(not port.host_port for port in container.ports):
        ports = tuple(replace(port, host_port=port.host_port or port.container_port) for port in container.ports)
        container = replace(container, ports=ports)
    return container if resources is container.resources else replace(container, resources=resources)


def _asking(resources: ResourceRequirements, said: set[str]) -> ResourceRequirements:
    """With its limits as requests, but for those that are `said` elsewhere."""
    missing = {
        name: amount for name, amount in resources.limits.items() if name not in resources.requests and name not in said
    }
    return replace(resources, requests={**resources.requests, **missing}) if missing else resources
