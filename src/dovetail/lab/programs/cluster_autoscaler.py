"""Cluster Autoscaler: `dovetail cluster-autoscaler` with the flags of its pod, on the lab's Auto Scaling groups."""

from __future__ import annotations

from dovetail.autoscalers.go_flags import FlagError
from dovetail.autoscalers.node_groups import options, program
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.klog import Klog
from dovetail.cloud.aws.auto_scaling_groups import AutoScalingGroups
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.group_tags import SpecError
from dovetail.lab.programs.context import ProgramContext, ProgramExit


async def run(context: ProgramContext) -> None:
    """Until SIGTERM."""
    try:
        settings = parse(context.arguments)
        discovery = options.discovery(settings)
    except (FlagError, SpecError) as problem:
        raise ProgramExit(2, f"Error: {problem}") from problem
    session = context.aws_session()
    assert context.aws is not None
    region = context.environment.get("AWS_REGION") or context.aws.region
    calls = Calls(
        context.clock, region=region, endpoint=context.aws.url, session=session, chance=context.chance.child("aws")
    )
    cloud = AutoScalingGroups(
        calls,
        context.clock,
        discovery,
        options.group_options(settings),
        static_types=settings["aws-use-static-instance-list"],
    )
    if settings["cloud-config"]:
        klog = Klog(context.clock, settings["v"], context.write)
        klog.warning("main", "--cloud-config has no effect here: every service is at the lab's AWS endpoint")
    running = program.ProgramHandle()
    port = settings["address"].rpartition(":")[2]
    if port.isdigit():
        health = {"/health-check": lambda: program.unhealthy(running, settings, context.clock), "/metrics": lambda: ""}
        context.serve(int(port), health)
    rate, burst = settings["kube-client-qps"], float(settings["kube-client-burst"])
    try:
        await program.run(
            settings,
            context.client("cluster-autoscaler", rate, burst),
            cloud,
            context.clock,
            context.chance.child("choices"),
            identity=context.pod,
            lease=context.client("cluster-autoscaler"),
            events=context.client("cluster-autoscaler", rate, burst),
            write=context.write,
            running=running,
        )
    finally:
        await cloud.close()
