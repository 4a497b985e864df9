"""The real Helm on our charts: lint, the walk-throughs' values as they stand, and each value one by one.

What `dovetail install` renders without Helm is compared with what Helm renders.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dovetail.install.chart import Chart, Release, chart_directory
from dovetail.install.sprig import load_yaml_documents
from dovetail.install.values import set_value
from tests.install.karpenter_values import ALL, WITH, nested

pytestmark = pytest.mark.kubernetes
ROOT = Path(__file__).parents[2]
CHART, CRD_CHART = chart_directory(), chart_directory("dovetail-crd")
KARPENTER = Release(name="karpenter", namespace="karpenter")
RESOURCES = (
    "controller.resources.requests.cpu=1",
    "controller.resources.requests.memory=1Gi",
    "controller.resources.limits.cpu=1",
    "controller.resources.limits.memory=1Gi",
)
#: The `--set` lists of the walk-throughs, and the `set` blocks of one, by version.
SEEDS: dict[str, tuple[str, ...]] = {
    "0.16": (
        "replicas=2",
        r"serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::111122223333:role/r",
        "clusterName=demo",
        "clusterEndpoint=https://demo.example",
        "aws.defaultInstanceProfile=profile",
    ),
    "0.30": (
        "settings.aws.defaultInstanceProfile=KarpenterNodeInstanceProfile-demo",
        "settings.aws.clusterName=demo",
        r"serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::111122223333:role/r",
        *RESOURCES,
        "replicas=2",
    ),
    "1.x": ("settings.clusterName=demo", "settings.interruptionQueue=demo", *RESOURCES, "replicas=1"),
}
VALUES_FILE = """
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 50
        preference:
          matchExpressions:
            - key: eks.amazonaws.com/nodegroup
              operator: Exists

tolerations:
  - key: CriticalAddonsOnly
    operator: Exists
  - key: system
    operator: Exists
    effect: "NoSchedule"


# -- Global Settings to configure Karpenter
settings:
  # -- Cluster name.
  clusterName: "bys-shared-eks-main"

  # -- Interruption queue is the name of the SQS queue used for processing interruption events from EC2
  interruptionQueue: "bys-shared-eks-main"
"""


@pytest.fixture(scope="module", params=["v3.22.0", pytest.param("v4.3.1", marks=pytest.mark.slow)])
def helm(request: pytest.FixtureRequest) -> str:
    built = subprocess.run([ROOT / "kubernetes" / "helm", request.param], capture_output=True, text=True, check=True)
    return built.stdout.strip()


@pytest.fixture(scope="module")
def chart() -> Chart:
    return Chart(CHART)


def template(helm: str, *arguments: str, values: str = "", folder: Path = CHART) -> list[dict[str, Any]]:
    run = subprocess.run(
        [helm, "template", "karpenter", folder, "--namespace", "karpenter", *arguments, "-f", "-"],
        input=values,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return load_yaml_documents(run.stdout)


def listed(objects: list[dict[str, Any]]) -> list[tuple[str, str, str, dict[str, Any]]]:
    keyed = ((o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"], o) for o in objects)
    return sorted(keyed, key=lambda entry: entry[:3])


def test_lint(helm: str) -> None:
    run = subprocess.run([helm, "lint", "--strict", CHART, CRD_CHART], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("version", SEEDS)
def test_the_set_lists_of_the_walk_throughs(helm: str, chart: Chart, version: str) -> None:
    theirs = template(helm, *(word for entry in SEEDS[version] for word in ("--set", entry)))
    given: dict[str, Any] = {}
    for entry in SEEDS[version]:
        set_value(given, entry)
    assert listed(theirs) == listed(chart.objects(KARPENTER, given))
    deployment = next(obj for obj in theirs if obj["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["CLUSTER_NAME"] == "demo"
    if version != "1.x":
        account = next(obj for obj in theirs if obj["kind"] == "ServiceAccount")
        assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].endswith(":role/r")
        assert variables["DEFAULT_INSTANCE_PROFILE"]


def test_the_values_file_of_the_walk_throughs(helm: str, chart: Chart) -> None:
    theirs = template(helm, values=VALUES_FILE)
    assert listed(theirs) == listed(chart.objects(KARPENTER, load_yaml_documents(VALUES_FILE)[0]))
    pod = next(obj for obj in theirs if obj["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert len(pod["tolerations"]) == 2
    assert set(pod["affinity"]["nodeAffinity"]) == {
        "preferredDuringSchedulingIgnoredDuringExecution",
        "requiredDuringSchedulingIgnoredDuringExecution",
    }


@pytest.mark.parametrize("path", ALL)
def test_each_value_renders_as_helm_renders_it(helm: str, chart: Chart, path: str) -> None:
    given = nested({**WITH.get(path, {}), path: ALL[path]})
    assert listed(template(helm, values=json.dumps(given))) == listed(chart.objects(KARPENTER, given))


def test_every_option_at_once_renders_alike_and_so_do_the_notes(helm: str, tmp_path: Path) -> None:
    """Notes are no object: a copy of the chart has them as one."""
    folder = tmp_path / "dovetail"
    shutil.copytree(CHART, folder)
    notes = (folder / "templates" / "NOTES.txt").read_text()
    (folder / "templates" / "notes.yaml").write_text(
        '{{- define "notes" -}}\n' + notes + "{{- end }}\n"
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  notes: {{ include "notes" . | quote }}\n'
    )
    left_out = ("controller.image", "logConfig.logLevel.global")
    paths = {path: value for path, value in ALL.items() if path not in left_out}
    for option in ("alerts", "dashboard", "dashboards", "flowSchemas", "networkPolicy", "vpa"):
        paths[f"{option}.enabled"] = True
    given = nested(paths) | {"misspelt": 1}
    theirs = template(helm, values=json.dumps(given), folder=folder)
    ours = Chart(folder)
    assert listed(theirs) == listed(ours.objects(KARPENTER, given))
    said = next(obj for obj in theirs if obj["metadata"]["name"] == "notes")["data"]["notes"]
    assert said.strip() == ours.notes(KARPENTER, given).strip()
    assert said.count("has no effect") > 15


def test_the_definitions(helm: str) -> None:
    given = {"additionalAnnotations": {"a": "b"}, "webhook": {"enabled": True}}
    theirs = template(helm, values=json.dumps(given), folder=CRD_CHART)
    assert listed(theirs) == listed(Chart(CRD_CHART).objects(KARPENTER, given))
    assert len(theirs) == 8


def test_a_wrong_type_is_refused(helm: str) -> None:
    run = subprocess.run(
        [helm, "template", "k", CHART, "--set", "replicas=two"], capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert "replicas" in run.stderr
