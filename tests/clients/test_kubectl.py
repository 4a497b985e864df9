"""The real kubectl against the lab: the commands of the guides, typed as people type them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.lab.real_control_plane import binary
from tests.clients.conftest import Served

#: The wheel's kubectl, and older generations that `make kubernetes` builds.
GENERATIONS = [
    "wheel",
    pytest.param("v1.30.14", marks=pytest.mark.kubernetes),
    pytest.param("v1.32.3", marks=pytest.mark.kubernetes),
]
Kubectl = Callable[..., str]

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: nginx, image: "nginx:1.25", resources: {requests: {cpu: 250m}}}
"""


@pytest.fixture(params=GENERATIONS)
def program(request: pytest.FixtureRequest) -> Path:
    if request.param == "wheel":
        return Path(sys.executable).parent / "kubectl"
    return binary().parent / f"kubectl-{request.param}"


@pytest.fixture
def kubectl(server: Served, tmp_path: Path, request: pytest.FixtureRequest, program: Path) -> Iterator[Kubectl]:
    """Runs kubectl in a namespace of the test's own; raises with its words if it fails unexpectedly."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")

    def run(command: str, stdin: str | None = None, fails: bool = False) -> str:
        environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}
        words = [str(program), "-n", name, *shlex.split(command)]
        done = subprocess.run(words, input=stdin, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert bool(done.returncode) == fails, f"kubectl {command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    run(f"create namespace {name}")
    yield run
    run(f"delete namespace {name} --wait=false")


def test_apply_get_change_and_delete(kubectl: Kubectl) -> None:
    assert "deployment.apps/web created" in kubectl("apply -f -", DEPLOYMENT)
    assert "deployment.apps/web unchanged" in kubectl("apply -f -", DEPLOYMENT)
    assert "deployment.apps/web configured" in kubectl("apply -f -", DEPLOYMENT.replace("1.25", "1.26"))
    assert re.search(r"NAME +READY +UP-TO-DATE +AVAILABLE +AGE\nweb +0/2 +0 +0 +", kubectl("get deploy"))
    assert "nginx:1.26" in kubectl("get deploy -o wide")
    assert json.loads(kubectl("get deploy web -o json"))["spec"]["replicas"] == 2
    assert "replicas: 2" in kubectl("get deployment/web -o yaml")
    assert kubectl("get deploy web -o jsonpath={.spec.replicas}") == "2"
    assert kubectl("get deploy -o name") == "deployment.apps/web\n"
    assert "web 2" in kubectl("get deploy -o custom-columns=N:.metadata.name,R:.spec.replicas --no-headers").replace(
        "   ", " "
    )
    assert 'deployment.apps "web" deleted' in kubectl("delete -f -", DEPLOYMENT)
    assert "NotFound" in kubectl("get deploy web", fails=True)
    assert "No resources found" in kubectl("get deploy")


def test_server_side_apply_and_its_conflicts(kubectl: Kubectl) -> None:
    assert "serverside-applied" in kubectl("apply --server-side -f -", DEPLOYMENT)
    other = DEPLOYMENT.replace("replicas: 2", "replicas: 3")
    said = kubectl("apply --server-side --field-manager=other -f -", other, fails=True)
    assert 'conflict with "kubectl": .spec.replicas' in said
    assert "serverside-applied" in kubectl("apply --server-side --field-manager=other --force-conflicts -f -", other)


def test_a_misspelt_field_is_named(kubectl: Kubectl) -> None:
    said = kubectl("apply -f -", DEPLOYMENT.replace("replicas", "replica"), fails=True)
    assert 'strict decoding error: unknown field "spec.replica"' in said


def test_diff_patch_label_annotate_scale_and_set(kubectl: Kubectl) -> None:
    kubectl("apply -f -", DEPLOYMENT)
    assert "+  replicas: 5" in kubectl("diff -f -", DEPLOYMENT.replace("replicas: 2", "replicas: 5"), fails=True)
    assert "scaled" in kubectl("scale deploy/web --replicas=4")
    assert kubectl("get deploy web -o jsonpath={.spec.replicas}") == "4"
    assert "patched" in kubectl("""patch deploy web -p '{"spec": {"replicas": 6}}'""")
    assert "patched" in kubectl("""patch deploy web --type=merge -p '{"spec": {"paused": true}}'""")
    assert "patched" in kubectl("""patch deploy web --type=json -p '[{"op": "remove", "path": "/spec/paused"}]'""")
    assert "patched (no change)" in kubectl("""patch deploy web -p '{"spec": {"replicas": 6}}'""")
    assert "labeled" in kubectl("label deploy web tier=front")
    assert "annotated" in kubectl("annotate deploy web note=hello")
    assert "image updated" in kubectl("set image deploy/web nginx=nginx:2")
    assert "resource requirements updated" in kubectl("set resources deploy/web --limits=cpu=1")
    assert "env updated" in kubectl("set env deploy/web A=b")
    assert "restarted" in kubectl("rollout restart deploy/web")
    assert "nginx:2" in kubectl("describe deploy web")


def test_the_typed_creates_speak_protobuf(kubectl: Kubectl, program: Path) -> None:
    share = "--cpu=50%" if program.name == "kubectl" else "--cpu-percent=50"
    assert "created" in kubectl("create deployment cache --image=redis --replicas=2")
    assert "created" in kubectl("create configmap settings --from-literal=a=b")
    assert "created" in kubectl("create secret generic pass --from-literal=p=w")
    assert "created" in kubectl("create serviceaccount robot")
    assert "created" in kubectl("run shell --image=busybox --restart=Never -- sleep 1")
    assert "exposed" in kubectl("expose deploy cache --port=6379")
    assert "autoscaled" in kubectl(f"autoscale deploy cache --min=1 --max=5 {share}")
    assert "created" in kubectl("create job once --image=busybox")
    assert "created" in kubectl("create cronjob often --image=busybox --schedule='*/5 * * * *'")
    assert re.search(r"cache +Deployment/cache +cpu: <unknown>/50% +1 +5 +0", kubectl("get hpa"))
    assert "yes" in kubectl("auth can-i create pods")
    listed = kubectl("get all")
    assert all(name in listed for name in ("pod/shell", "service/cache", "deployment.apps/cache", "job.batch/once"))


def test_nodes_are_tainted_cordoned_drained(kubectl: Kubectl) -> None:
    kubectl("create -f -", '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "box"}}')
    box = [{"name": "c", "image": "x"}]
    spec = {"nodeName": "box", "terminationGracePeriodSeconds": 0, "containers": box}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tenant"}, "spec": spec}
    kubectl("create -f -", json.dumps(pod))
    assert "tainted" in kubectl("taint nodes box dedicated=gpu:NoSchedule")
    assert "cordoned" in kubectl("cordon box")
    assert "SchedulingDisabled" in kubectl("get nodes")
    assert "tenant" in kubectl("describe node box")
    said = kubectl("drain box --force --ignore-daemonsets")
    assert "evicting pod" in said
    assert "box drained" in said
    assert "uncordoned" in kubectl("uncordon box")
    kubectl("delete node box")


def test_reading_the_api_itself(kubectl: Kubectl) -> None:
    assert re.search(r"deployments +deploy +apps/v1 +true +Deployment", kubectl("api-resources"))
    assert "horizontalpodautoscalers" in kubectl("api-resources --categories=all")
    assert "apps/v1" in kubectl("api-versions")
    assert "Server Version: v1." in kubectl("version")
    assert "replicas" in kubectl("explain deployment.spec")
    assert "ok" in kubectl("get --raw /readyz")
    assert "is running at" in kubectl("cluster-info")
    assert "No events found" in kubectl("events")


def test_watch_wait_edit_and_replace(kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl("create configmap c --from-literal=a=1")
    assert re.search(r"NAME +DATA +AGE\nc +1 +", kubectl("get configmap c -w --request-timeout=1s"))
    (tmp_path / "edit").write_text('#!/bin/sh\nsed -i \'s/a: "1"/a: "2"/\' "$1"\n')
    (tmp_path / "edit").chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(tmp_path / "edit"))
    assert "edited" in kubectl("edit configmap c")
    text = kubectl("get configmap c -o yaml")
    assert 'a: "2"' in text
    assert "replaced" in kubectl("replace -f -", text.replace('a: "2"', 'a: "3"'))
    assert "condition met" in kubectl("wait configmap/c --for=jsonpath={.data.a}=3 --timeout=5s")
    assert "deleted" in kubectl("delete configmap c")


def test_definitions_and_their_objects(kubectl: Kubectl) -> None:
    definition = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.clients.example.com}
spec:
  group: clients.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Length, type: integer, jsonPath: .spec.length}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {length: {type: integer, minimum: 1, description: "How long it is."}}
"""
    boat = "apiVersion: clients.example.com/v1\nkind: Boat\nmetadata: {name: b}\nspec: {length: 5}\n"
    kubectl("apply -f -", definition)
    kubectl("wait crd/boats.clients.example.com --for=condition=Established --timeout=10s")
    assert "boat.clients.example.com/b created" in kubectl("apply -f -", boat)
    assert re.search(r"NAME +LENGTH\nb +5", kubectl("get bt"))
    said = kubectl("apply -f -", boat.replace("5", "0"), fails=True)
    assert "spec.length in body should be greater than or equal to 1" in said
    assert 'unknown field "spec.width"' in kubectl(
        "apply -f -", boat.replace("length: 5", "length: 5, width: 1"), fails=True
    )
    assert "How long it is." in kubectl("explain boat.spec.length")
    assert "deleted" in kubectl("delete crd boats.clients.example.com")
