"""The command line of the Cluster Autoscaler: flags as Go reads them, and the manifests that install it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dovetail.autoscalers.go_flags import FlagError
from dovetail.autoscalers.node_groups.flags import FLAGS, parse
from dovetail.autoscalers.node_groups.options import discovery, group_options, options
from dovetail.cli.main import main


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ([], "expander", "least-waste"),
        ([], "scan-interval", 10.0),
        ([], "scale-down-unneeded-time", 600.0),
        (["--expander=priority,least-waste"], "expander", "priority,least-waste"),
        (["-v", "4"], "v", 4),
        (["--v=4"], "v", 4),
        (["-v=2"], "v", 2),
        (["--scan-interval", "30s"], "scan-interval", 30.0),
        (["--skip-nodes-with-local-storage=false"], "skip-nodes-with-local-storage", False),
        (["--balance-similar-node-groups"], "balance-similar-node-groups", True),
        (["--max_nodes_total=3"], "max-nodes-total", 3),
        (["--nodes=1:10:a", "--nodes", "0:3:b"], "nodes", ("1:10:a", "0:3:b")),
        (["--scale-down-utilization-threshold=0.7"], "scale-down-utilization-threshold", 0.7),
        (["--expendable-pods-priority-cutoff=-5"], "expendable-pods-priority-cutoff", -5),
    ],
)
def test_flags(words: list[str], name: str, value: Any) -> None:
    assert parse(words)[name] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--expandr=random"], "did you mean --expander"),
        (["--nonsense-flag-of-mine"], "unknown flag: --nonsense-flag-of-mine; --help lists the flags"),
        (["--scan-interval=soon"], "10s, 5m"),
        (["--scale-down-enabled=maybe"], "true or false"),
        (["--max-nodes-total=many"], "^--max-nodes-total=many: it must be a whole number$"),
        (["--scale-down-utilization-threshold=half"], "=half: it must be a number$"),
        (["--gpu-total=nvidia"], "--gpu-total=nvidia: write it TYPE:MIN:MAX"),
        (["--gpu-total=nvidia:4:2"], "--gpu-total=nvidia:4:2: the minimum must be 0 or more"),
        (["--scan-interval"], "needs an argument"),
        (["stray"], "is not a flag"),
        (["--expander=cheapest"], "is no expander"),
        (["--cloud-provider=gce"], "only aws"),
        (["--cores-total=5"], "MIN:MAX"),
        (["--cores-total=9:5"], "at least the minimum"),
        (["--balancing-label=a", "--balancing-ignore-label=b"], "exclude each other"),
    ],
)
def test_bad_flags_are_refused_with_a_hint(words: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        parse(words)


def test_flags_without_effect_are_named() -> None:
    settings = parse(["--logtostderr=true", "--stderrthreshold=info", "--max-empty-bulk-delete=20", "--v=4"])
    assert settings.ineffective == ("logtostderr", "stderrthreshold", "max-empty-bulk-delete")
    assert "--max-scale-down-parallelism" in settings.notices()[2]


def test_every_flag_with_effect_is_read_somewhere() -> None:
    """A flag that is accepted and ignored would mislead: each is in the source of the program, or says so."""
    from importlib import resources

    folder = resources.files("dovetail.autoscalers.node_groups")
    text = (
        "".join((folder / name).read_text() for name in ("options.py", "program.py", "flags.py"))
        + (resources.files("dovetail.cli") / "cluster_autoscaler.py").read_text()
    )
    effective = [name for name, flag in FLAGS.items() if not flag.without_effect]
    unread = [name for name in effective if f'["{name}"]' not in text]
    assert len(effective) > 60
    assert unread == []


def test_flags_reach_the_parts() -> None:
    settings = parse(
        [
            "--nodes=1:10:a",
            "--node-group-auto-discovery=asg:tag=x,y=z",
            "--scale-down-unneeded-time=2m",
            "--max-drain-parallelism=3",
            "--startup-taint=cni",
            "--memory-total=1:2",
            "--min-replica-count=2",
        ]
    )
    found = options(settings)
    assert found.actuation.max_drain_parallelism == 3
    assert found.taints.is_startup("cni")
    assert found.limits["memory"].most == 2 << 30
    assert found.scale_down.drain.min_replica_count == 2
    assert group_options(settings).scale_down_unneeded_s == 120.0
    assert discovery(settings).tags == ({"x": "", "y": "z"},)


def test_the_command_refuses_and_helps() -> None:
    wrong = CliRunner().invoke(main, ["cluster-autoscaler", "--expandr=random"])
    assert wrong.exit_code == 2 and "did you mean --expander" in wrong.output
    shown = CliRunner().invoke(main, ["cluster-autoscaler", "--help"])
    assert shown.exit_code == 0 and "--scale-down-unneeded-time=10m0s" in shown.output
    with_effect, _, without = shown.output.partition("Flags that have no effect here:")
    assert "      MIN:MAX:NAME of a group" in with_effect and "--estimator=" in with_effect
    assert "--fastpath-binpacking-enabled" in without and "--nodes=" not in without


def test_the_definition_of_provisioning_requests_is_printed() -> None:
    made = CliRunner().invoke(main, ["manifests", "provisioning-requests"])
    [crd] = yaml.safe_load_all(made.output)
    assert crd["metadata"]["name"] == "provisioningrequests.autoscaling.x-k8s.io"


def test_manifests() -> None:
    refused = CliRunner().invoke(main, ["manifests", "cluster-autoscaler"])
    assert refused.exit_code == 2 and "--cluster" in refused.output
    made = CliRunner().invoke(main, ["manifests", "cluster-autoscaler", "--cluster", "demo"])
    objects = list(yaml.safe_load_all(made.output))
    assert [each["kind"] for each in objects] == [
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "ClusterRoleBinding",
        "RoleBinding",
        "Deployment",
    ]
    container = objects[-1]["spec"]["template"]["spec"]["containers"][0]
    assert parse(container["args"])["node-group-auto-discovery"] == (
        "asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/demo",
    )
