"""Which image is which program. An image counts by the end of its repository, from any registry and with any tag."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.lab.programs import autoscaler, cluster_autoscaler, study, system, vpa
from dovetail.lab.programs.context import Program

#: Programs by the name of their executable.
PROGRAMS: Mapping[str, Program] = {
    "karpenter": autoscaler.run,
    "cluster-autoscaler": cluster_autoscaler.run,
    "recommender": vpa.run_recommender,
    "updater": vpa.run_updater,
    "admission-controller": vpa.run_admission_controller,
    "webhook": system.run_conversion_webhook,
    "metrics-server": system.run_metrics_server,
    "kube-proxy": system.run_kube_proxy,
    "aws-node": system.run_aws_node,
    "coredns": system.run_coredns,
    "compare": study.run_compare,
}
#: The executable that an image starts, by the end of its repository.
_ENTRYPOINTS: Mapping[str, str] = {
    "dovetail": "dovetail",
    "dovetail/controller": "dovetail",
    "karpenter/controller": "karpenter",
    "cluster-autoscaler": "cluster-autoscaler",
    "vpa-recommender": "recommender",
    "vpa-updater": "updater",
    "vpa-admission-controller": "admission-controller",
    "metrics-server": "metrics-server",
    "kube-proxy": "kube-proxy",
    "amazon-k8s-cni": "aws-node",
    "aws-node": "aws-node",
    "coredns": "coredns",
}
#: Other names of executables in those images.
_ALIASES: Mapping[str, str] = {"controller": "karpenter", "karpenter-controller": "karpenter"}
#: The programs of `dovetail`, by the words after it.
_SUBCOMMANDS: Mapping[tuple[str, ...], str] = {
    ("run",): "karpenter",
    ("cluster-autoscaler",): "cluster-autoscaler",
    ("vpa", "recommender"): "recommender",
    ("vpa", "updater"): "updater",
    ("vpa", "admission-controller"): "admission-controller",
    ("webhook",): "webhook",
    ("compare",): "compare",
}


def find(image: str, command: tuple[str, ...], args: tuple[str, ...]) -> tuple[Program, tuple[str, ...]] | None:
    """The program of a container and its arguments; None for images and commands that are none of ours."""
    entrypoint = entrypoint_of(image)
    if entrypoint is None:
        return None
    words = (*command, *args) if command else (entrypoint, *args)
    name = words[0].rsplit("/", 1)[-1]
    rest = words[1:]
    if name == "dovetail":
        for subcommand, program in _SUBCOMMANDS.items():
            if rest[: len(subcommand)] == subcommand:
                return PROGRAMS[program], rest[len(subcommand) :]
        return None
    executable = PROGRAMS.get(_ALIASES.get(name, name))
    return (executable, rest) if executable is not None else None


def entrypoint_of(image: str) -> str | None:
    """What the image starts without a command, if it is known."""
    repository = image.split("@", 1)[0]
    head, slash, last = repository.rpartition("/")
    repository = f"{head}{slash}{last.split(':', 1)[0]}"
    parts = repository.split("/")
    return _ENTRYPOINTS.get("/".join(parts[-2:])) or _ENTRYPOINTS.get(parts[-1])
