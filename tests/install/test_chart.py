"""The chart: values of Karpenter's charts are honoured or named, wrong types are refused, objects keep their names."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.controllers.inert_settings import WITHOUT_EFFECT
from dovetail.controllers.settings import Settings, read
from dovetail.install.chart import Chart, Release, ValuesError, chart_directory
from tests.install.karpenter_values import ALL, ALREADY_SO, WITH, nested

KARPENTER = Release(name="karpenter", namespace="karpenter")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def chart() -> Chart:
    return Chart(chart_directory())


def by_kind(objects: list[dict[str, Any]], kind: str, name: str = "karpenter") -> dict[str, Any]:
    return next(obj for obj in objects if obj["kind"] == kind and obj["metadata"]["name"] == name)


def environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    container = by_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def test_objects_are_named_by_the_release_and_carry_karpenters_labels(chart: Chart) -> None:
    objects = chart.objects(KARPENTER, {})
    names = {(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace", "")) for obj in objects}
    assert {
        ("Deployment", "karpenter", "karpenter"),
        ("Service", "karpenter", "karpenter"),
        ("ServiceAccount", "karpenter", "karpenter"),
        ("PodDisruptionBudget", "karpenter", "karpenter"),
        ("ClusterRole", "karpenter", ""),
        ("ClusterRole", "karpenter-admin", ""),
        ("Role", "karpenter", "karpenter"),
    } <= names
    labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
    deployment = by_kind(objects, "Deployment")
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert deployment["spec"]["template"]["metadata"]["labels"] == labels
    assert len(objects) >= 11
    for obj in objects:
        assert labels.items() <= obj["metadata"]["labels"].items(), obj["metadata"]["name"]


def test_the_pods_stay_off_the_nodes_they_manage(chart: Chart) -> None:
    spec = by_kind(chart.objects(KARPENTER, {}), "Deployment")["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = {expression["key"] for term in required for expression in term["matchExpressions"]}
    assert keys == {"karpenter.sh/nodepool", "karpenter.sh/provisioner-name"}
    selector = pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    assert selector == spec["selector"]["matchLabels"]
    security = pod["containers"][0]["securityContext"]
    assert (security["runAsUser"], security["readOnlyRootFilesystem"]) == (65532, True)


@cache
def rendered(chart: Chart, *paths: str) -> tuple[list[dict[str, Any]], str]:
    """Without the value that is tested; `paths` name those that it only shows with."""
    given = nested({path: value for values in WITH.values() for path, value in values.items() if path in paths})
    return chart.objects(KARPENTER, given), chart.notes(KARPENTER, given)


def effects(chart: Chart, path: str, before: dict[str, Any]) -> tuple[bool, bool]:
    """Whether a value changes an object, and whether the notes say that it has no effect."""
    given = nested({**before, path: ALL[path]})
    objects, notes = chart.objects(KARPENTER, given), chart.notes(KARPENTER, given)
    plain_objects, plain_notes = rendered(chart, *before)
    named = notes != plain_notes and any(
        path.startswith(line.removeprefix("* ").split(" = ")[0]) for line in notes.splitlines() if line.startswith("* ")
    )
    return objects != plain_objects, named


@pytest.mark.parametrize("path", ALL)
def test_each_value_is_honoured_or_named_as_without_effect(chart: Chart, path: str) -> None:
    """Alone, and together with what it needs."""
    assert any(effects(chart, path, {})) == (path not in ALREADY_SO)
    if path in WITH:
        assert any(effects(chart, path, WITH[path])) == (path not in ALREADY_SO)


#: One value of every type; a path takes those of its own type, a number also where text holds one.
TYPES: tuple[Any, ...] = ("two words", 7, 0.5, True, ["x"], [{"x": 1}], {"x": 1})


@pytest.mark.parametrize("path", ALL)
def test_a_wrong_type_is_refused_for_each_value(chart: Chart, path: str) -> None:
    refused = []
    for value in TYPES:
        try:
            chart.objects(KARPENTER, nested({path: value}))
        except ValuesError as problem:
            assert str(problem).startswith(path.rpartition(".")[0])
            refused.append(value)
    expected = ALL[path]
    if isinstance(expected, dict | list):
        assert [value for value in TYPES if not isinstance(value, dict | list) and value not in refused] in (
            [],
            ["two words"],  # an image is a reference too
        )
        assert {"x": 1} in refused or isinstance(expected, dict) or path == "controller.sidecarContainer"
    else:
        assert [{"x": 1}] in refused and ["x"] in refused and (True in refused or isinstance(expected, bool))
        assert {"x": 1} in refused or path in ("controller.image", "webhook.image")


def test_the_controller_reads_every_variable_of_the_chart(chart: Chart) -> None:
    """What the chart sets, the controller understands: no value of the chart stops it."""
    given = nested(
        {
            path: value
            for path, value in ALL.items()
            if path.startswith(("settings.", "log", "controller.")) and not path.startswith("controller.image")
        }
    )
    settings = read({}, environment(chart.objects(KARPENTER, given)))
    assert settings.cluster_name == "demo"
    assert settings.interruption_queue == "demo"
    assert settings.batch_max_duration == 20.0
    assert settings.vm_memory_overhead_percent == 0.0
    assert settings.gate("NodeRepair")
    assert not settings.gate("ReservedCapacity")
    assert settings.leader_election_namespace == "karpenter"
    assert settings.assume_role_arn == "arn:aws:iam::111122223333:role/r"
    assert (settings.assume_role_duration, settings.eks_control_plane) == (900.0, True)
    assert settings.aws_tags == {"team": "platform"}
    inert = {value.setting for value in settings.without_effect()}
    assert inert == {"feature_gates CapacityBuffer"}, "what has no effect is not handed on, but named in the notes"


#: Settings that the chart does not pass: what has no effect, and the lease's name, which Karpenter must share so that
#: only one of the two leads (and which the chart's Role grants alone).
NOT_PASSED = {*WITHOUT_EFFECT, "leader_election_name", "enable_zonal_shift"}
#: Values of the chart for settings that Karpenter's chart does not have, or has by another name.
OWN_VALUES = {
    "settings.tags": {"team": "shop"},
    "settings.assumeRoleDuration": "30m",
    "settings.ec2Share": 0,
    "settings.defaultInstanceProfile": "profile",
    "settings.placeSchedulers": ["default-scheduler", "volcano"],
    "settings.planDeadline": "0s",
    "settings.launchTimeout": "4m",
    "settings.registrationTimeout": "20m",
    "settings.legacyNodeRepair": True,
    "settings.dryRun": True,
    "settings.history": "/data/history",
    "settings.kubeClientQPS": 50,
    "settings.kubeClientBurst": "100",
    "settings.enableProfiling": True,
    "settings.profilingPort": 6061,
    "settings.disableLeaderElection": True,
    "settings.schedulerConfig": "podTopologySpread: {}",
    "settings.place": "nominate",
}


def test_the_chart_passes_every_setting_that_the_controllers_know(chart: Chart) -> None:
    """Each with a value other than its default reaches the controller; a setting that is new here fails this test."""
    given = {path: value for path, value in ALL.items() if path.startswith(("settings.", "log"))}
    ports = {"controller.metrics.port": 9000, "controller.healthProbe.port": 9001, "logLevel": "debug"}
    objects = chart.objects(KARPENTER, nested({**given, **OWN_VALUES, **ports, "logEncoding": "console"}))
    container = by_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    from_pod = {entry["name"].lower() for entry in container["env"] if "valueFrom" in entry}
    assert from_pod == {"system_namespace", "memory_limit"}
    settings, defaults = read({}, environment(objects)), Settings()
    names = set(Settings.__struct_fields__)
    passed = {name for name in names if getattr(settings, name) != getattr(defaults, name)}
    assert names - passed - from_pod == NOT_PASSED
    assert (settings.ec2_share, settings.plan_deadline, settings.kube_client_qps) == (0.0, 0.0, 50)
    assert settings.place_schedulers == "default-scheduler,volcano" and settings.aws_tags == {"team": "shop"}


def test_values_without_effect_are_silent_when_they_say_what_holds(chart: Chart) -> None:
    given = nested(
        {
            "settings.featureGates.drift": True,
            "settings.ignoreDRARequests": True,
            "replicas": 2,
            "settings.aws.enablePodENI": True,
            "settings.clusterName": "demo",
        }
    )
    assert "without effect" not in chart.notes(KARPENTER, given)


def test_a_misspelt_value_is_named(chart: Chart) -> None:
    notes = chart.notes(KARPENTER, {"settings": {"clustername": "demo"}, "replica": 3})
    assert "* settings.clustername is no value of this chart" in notes
    assert "* replica is no value of this chart" in notes
    assert "settings.clusterName is empty" in notes


@pytest.mark.parametrize(
    "path",
    ["settings.aws.podENI", "settings.featureGates.nodeRepiar", "aws.clusterName", "webhook.certificate", "service.a"],
)
def test_a_misspelt_value_is_named_wherever_it_stands(chart: Chart, path: str) -> None:
    notes = chart.notes(KARPENTER, nested({path: True, "settings.clusterName": "demo"}))
    assert notes.count("has no effect") == 1
    assert f"* {path} is no value of this chart and has no effect." in notes


def test_what_karpenters_default_values_say_is_accepted(chart: Chart) -> None:
    """Whole values files of releases are handed over; some of their defaults have odd types."""
    given = nested(
        {
            "initContainers": {},
            "controller.sidecarContainer": {},
            "controller.securityContext": {},
            "terminationGracePeriodSeconds": None,
            "settings.aws.tags": None,
            "serviceMonitor.sampleLimit": None,
            "podDisruptionBudget.name": "karpenter",
            "logConfig.enabled": False,
            "logConfig.logLevel": {"global": "info", "controller": "info", "webhook": "error"},
            "settings.clusterName": "demo",
        }
    )
    assert chart.objects(KARPENTER, given)
    assert "no effect" not in chart.notes(KARPENTER, given)


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"logLevel": "debug", "controller.logLevel": "error"}, "error"),
        ({"logLevel": "info", "logConfig.logLevel.global": "debug"}, "debug"),
        ({"logLevel": "info", "logConfig.logLevel.global": "debug", "logConfig.enabled": False}, "info"),
        ({"logConfig.logLevel.global": "info", "logConfig.logLevel.controller": "debug"}, "debug"),
        ({"logConfig.logLevel": "debug"}, "debug"),
    ],
)
def test_the_narrower_log_level_counts(chart: Chart, given: dict[str, Any], level: str) -> None:
    assert environment(chart.objects(KARPENTER, nested(given)))["LOG_LEVEL"] == level


def test_containers_and_strategies_of_older_charts(chart: Chart) -> None:
    given = {
        "controller.securityContext": {"runAsUser": 1000, "runAsNonRoot": False, "seLinuxOptions": {}},
        "controller.sidecarContainer": {"name": "proxy", "image": "proxy"},
        "strategy.type": "Recreate",
    }
    spec = by_kind(chart.objects(KARPENTER, nested(given)), "Deployment")["spec"]
    controller, sidecar = spec["template"]["spec"]["containers"]
    context = controller["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"], context["runAsGroup"]) == (1000, False, 65532)
    assert "seLinuxOptions" not in context and context["readOnlyRootFilesystem"]
    assert sidecar == {"name": "proxy", "image": "proxy"}
    assert spec["strategy"] == {"type": "Recreate"}, "the server refuses rollingUpdate beside it"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", "two"),
        ("settings.clusterName", ["demo"]),
        ("controller.env", {"A": "b"}),
        ("settings.batchMaxDuration", "ten"),
        ("serviceAccount.annotations", "arn"),
        ("settings.place", "anywhere"),
        ("settings.featureGates.nodeRepair", "maybe"),
        ("tolerations", {"key": "a"}),
        ("webhook.port", 0),
        ("settings.aws", "demo"),
        ("podDisruptionBudget.maxUnavailable", "half"),
        ("podLabels.version", 1),
        ("strategy.rollingUpdate.maxSurge", True),
        ("controller.resources.limits.memory", "1 GB"),
        ("controller.resources.requests", "1"),
        ("podSecurityContext.fsGroup", "root"),
    ],
)
def test_a_wrong_type_is_refused_by_its_path(chart: Chart, path: str, value: Any) -> None:
    with pytest.raises(ValuesError, match=rf"^{path}: "):
        chart.objects(KARPENTER, nested({path: value}))


def test_a_default_is_removed_by_null(chart: Chart) -> None:
    objects = chart.objects(KARPENTER, {"affinity": None, "priorityClassName": None})
    pod = by_kind(objects, "Deployment")["spec"]["template"]["spec"]
    assert "affinity" not in pod
    assert "priorityClassName" not in pod


def test_flow_schemas_keep_the_lease_and_the_other_requests_of_our_account_apart(chart: Chart) -> None:
    objects = chart.objects(KARPENTER, {"flowSchemas": {"enabled": True}})
    account = by_kind(objects, "ServiceAccount")["metadata"]["name"]
    levels = {}
    for name in ("karpenter-leader-election", "karpenter"):
        spec = by_kind(objects, "FlowSchema", name)["spec"]
        (rule,) = spec["rules"]
        assert [subject["serviceAccount"]["name"] for subject in rule["subjects"]] == [account]
        levels[spec["priorityLevelConfiguration"]["name"]] = spec["matchingPrecedence"]
    assert list(levels) == ["leader-election", "workload-high"]
    assert levels["leader-election"] < levels["workload-high"], "the lower number is matched first"


def test_zero_is_a_value(chart: Chart) -> None:
    spec = by_kind(chart.objects(KARPENTER, {"replicas": 0, "terminationGracePeriodSeconds": 0}), "Deployment")["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["terminationGracePeriodSeconds"]) == (0, 0)


def test_the_generated_parts_of_the_charts_are_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, "scripts/build_charts.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_definitions_point_at_the_webhook_where_they_convert() -> None:
    chart = Chart(chart_directory("dovetail-crd"))
    plain = chart.objects(KARPENTER, {"additionalAnnotations": {"a": "b"}})
    assert len(plain) == 8
    assert {obj["metadata"]["annotations"]["a"] for obj in plain} == {"b"}
    converted = chart.objects(KARPENTER, {"webhook": {"enabled": True}})
    services = {
        obj["metadata"]["name"]: obj["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
        for obj in converted
        if "conversion" in obj["spec"]
    }
    assert set(services) == {"nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"}
    assert services["nodepools.karpenter.sh"]["namespace"] == "karpenter"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML: line 2, column 1: "),
        ("replicas: 2\n--- x\n", "is not YAML: line 2, column 1: but found another document"),
        ("a: !mine x\n", "is not YAML: line 1, column 4: could not determine a constructor"),
        ("a: !!int x\n", "is not YAML: "),
        ("\x00", "is not YAML: "),
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a: &a [*a]\n", "nested too deeply to be values of a chart; a YAML alias may repeat itself"),
        ("\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]" for n in range(9)), "more than 100"),
        ("- a\n", "is not a map of values"),
    ],
)
def test_a_values_file_that_is_none_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    answer = CliRunner().invoke(main, ["install", "--print", "--cluster", "demo", "--values", str(file)])
    assert (answer.exit_code, type(answer.exception)) == (2, SystemExit), answer.exception
    assert answer.stderr.startswith(f"Error: {file}: ") and said in answer.stderr
