"""Programs of every EKS cluster. Their work is done by other parts of the lab; they are well while their pod runs.

The scheduler's network is the lab's own, metrics.k8s.io is answered by the API server, and so are conversions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dovetail.lab.programs.context import Health, ProgramContext


def _healthy_body() -> str:
    return ""


async def _run(context: ProgramContext, line: str, ports: Mapping[int, Mapping[str, Health]]) -> None:
    """Until SIGTERM."""
    for port, paths in ports.items():
        context.serve(port, paths)
    context.write(line)
    await asyncio.Event().wait()


def _line(context: ProgramContext, text: str) -> str:
    """As klog writes it."""
    return f"I{context.clock.now():%m%d %H:%M:%S.%f}       1 {text}"


async def run_metrics_server(context: ProgramContext) -> None:
    port = next((int(flag.partition("=")[2]) for flag in context.arguments if flag.startswith("--secure-port=")), 4443)
    line = _line(context, f"Serving securely on [::]:{port}; metrics of pods and nodes are the lab's load model")
    await _run(context, line, {port: {"/livez": _healthy_body, "/readyz": _healthy_body}})


async def run_kube_proxy(context: ProgramContext) -> None:
    line = _line(context, f"Using iptables proxy; hostname {context.node}")
    await _run(context, line, {10256: {"/healthz": _healthy_body}, 10249: {"/metrics": _healthy_body}})


async def run_aws_node(context: ProgramContext) -> None:
    await _run(context, _line(context, "Successfully copied CNI plugin binary and config file."), {50051: {}})


async def run_coredns(context: ProgramContext) -> None:
    ports = {8080: {"/health": _healthy_body}, 8181: {"/ready": _healthy_body}, 9153: {"/metrics": _healthy_body}}
    await _run(context, ".:53\n[INFO] plugin/reload: Running configuration", ports)


async def run_conversion_webhook(context: ProgramContext) -> None:
    """The lab's API server converts our kinds itself; the definitions need no webhook here."""
    line = _line(context, "The API server of the lab converts between v1 and v1beta1 itself; no review will come")
    await _run(context, line, {8443: {"/healthz": _healthy_body, "/convert": _healthy_body}})
