"""The node of a group that has none: from its good nodes, from memory, from the cloud."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dovetail.autoscalers.node_groups import options as options_of
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.templates import (
    TaintConfig,
    TemplateCache,
    from_cloud,
    from_node,
    from_nodes,
    is_good_template,
)
from dovetail.cloud.node_groups import NodeTemplate
from dovetail.model.meta import view
from dovetail.model.workloads import DaemonSet
from tests.autoscalers.node_group_objects import NOW, group, info, node, pod

MINUTE = timedelta(minutes=1)


def test_templates_come_from_good_nodes_then_from_memory() -> None:
    cache, config = TemplateCache(3600), TaintConfig(startup=frozenset({"cni"}))
    taints = [{"key": "cni", "effect": "NoSchedule"}, {"key": "team", "effect": "NoSchedule"}]
    good = info(node("n", taints=taints), pod("a"), pod("d", owner="DaemonSet/ds"))
    member = group("g", 0, 10, 1, good.node)
    found = from_nodes([member], {"g": [good]}, cache, config, NOW)["g"]
    assert [taint.key for taint in found.node.spec.taints] == ["team"]
    assert [placed.pod.metadata.name for placed in found.pods.values()] == ["d"]
    assert found.labels["kubernetes.io/hostname"] == found.name != "n"
    assert "g" in from_nodes([member], {}, cache, config, NOW + 30 * MINUTE)
    assert from_nodes([member], {}, cache, config, NOW + 61 * MINUTE) == {}
    assert not is_good_template(node("n", since=NOW - timedelta(seconds=30)), NOW)
    assert not is_good_template(node("n", ready=False), NOW)


def test_a_template_of_the_cloud_gets_daemonset_pods() -> None:
    def daemonset(name: str, selector: dict[str, str]) -> DaemonSet:
        spec = {"containers": [{"resources": {"requests": {"cpu": "100m"}}}], "nodeSelector": selector}
        return view({"metadata": {"name": name, "uid": name}, "spec": {"template": {"spec": spec}}}, DaemonSet)

    made = from_cloud(
        NodeTemplate(node("t")), [daemonset("proxy", {}), daemonset("gpu", {"gpu": "yes"})], "g", TaintConfig()
    )
    assert made.requested["cpu"] == 100


def test_from_node_drops_pods_that_are_going() -> None:
    going = pod("d", owner="DaemonSet/ds", deleted=NOW)
    assert not from_node(info(node("n"), going), "g", TaintConfig()).pods


def test_forced_daemonsets_have_a_pod_on_the_template_of_a_node_without_it() -> None:
    def daemonset(name: str, **spec: Any) -> DaemonSet:
        template = {"spec": {"containers": [{"name": "c"}], **spec}}
        return view({"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"template": template}}, DaemonSet)

    there = info(node("n"), pod("d", owner="DaemonSet/there"))
    elsewhere = daemonset("elsewhere", nodeSelector={"team": "other"})
    forced = (daemonset("there"), daemonset("new"), elsewhere)
    assert [placed.pod.metadata.name for placed in from_node(there, "g", TaintConfig()).pods.values()] == ["d"]
    template = from_node(there, "g", TaintConfig(), forced)
    assert [placed.pod.metadata.name for placed in template.pods.values()] == ["d", "new-pod-template"]
    assert options_of.options(parse(["--force-ds"])).force_daemonsets
