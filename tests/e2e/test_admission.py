"""Policy engines and policies on a running lab, with the real kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Outside
from tests.e2e.webhook_program import NAMESPACE, SERVICE, WebhookProgram

pytestmark = pytest.mark.timeout(400)
Json = dict[str, Any]
API = "admissionregistration.k8s.io/v1"


def rule(group: str, resource: str, *operations: str) -> Json:
    return {"operations": list(operations), "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}


def webhook(program: WebhookProgram, path: str, *rules: Json, **fields: Any) -> Json:
    return {
        "name": f"{path.strip('/')}.policies.example.com",
        "clientConfig": program.client(path),
        "rules": list(rules),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        **fields,
    }


def configuration(kind: str, *webhooks: Json) -> str:
    return json.dumps({"apiVersion": API, "kind": kind, "metadata": {"name": SERVICE}, "webhooks": list(webhooks)})


@pytest.fixture(scope="module")
def program(lab: Outside) -> Iterator[WebhookProgram]:
    """The policy engine, with its Service and its registration."""
    with WebhookProgram() as running:
        lab.run(f"kubectl create namespace {NAMESPACE}")
        lab.run("kubectl create namespace team-a")
        lab.run(f"kubectl create service externalname {SERVICE} -n {NAMESPACE} --external-name localhost")
        here = {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
        pods = webhook(running, "/label", rule("", "pods", "CREATE"), namespaceSelector=here)
        lab.apply(configuration("MutatingWebhookConfiguration", pods))
        team = webhook(running, "/team", rule("apps", "deployments", "CREATE", "UPDATE"), namespaceSelector=here)
        weight = webhook(running, "/weight", rule("karpenter.sh", "nodepools", "CREATE", "UPDATE"))
        lab.apply(configuration("ValidatingWebhookConfiguration", team, weight))
        yield running
        for kind in ("mutating", "validating"):
            lab.run(f"kubectl delete {kind}webhookconfiguration {SERVICE}")


def deployment(name: str, **labels: str) -> str:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"name": name, "namespace": "team-a", "labels": labels}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})


def test_every_pod_that_a_controller_creates_gets_the_webhooks_label(lab: Outside, program: WebhookProgram) -> None:
    refusal = lab.run("kubectl apply -f -", check=False, input=deployment("web"))
    assert 'admission webhook "team.policies.example.com" denied the request: label team is required' in refusal
    lab.apply(deployment("web", team="a"))
    pods = "kubectl get pods -n team-a -l app=web,policy=applied"
    lab.until(lambda: len(lab.json(pods)["items"]) == 2)


def test_a_webhook_of_karpenters_kinds_is_asked(lab: Outside, program: WebhookProgram) -> None:
    template = {
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        }
    }
    made = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "heavy"}}
    heavy = json.dumps({**made, "spec": {"weight": 60, "template": template}})
    assert "weight must be at most 50" in lab.run("kubectl apply -f -", check=False, input=heavy)
    lab.apply(json.dumps({**made, "spec": {"weight": 40, "template": template}}))
    lab.run("kubectl delete nodepool heavy")


def test_a_policy_denies_in_its_own_words(lab: Outside) -> None:
    policy = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "replicas"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule("apps", "deployments", "CREATE", "UPDATE")]},
            "validations": [
                {
                    "expression": "object.spec.replicas <= 5",
                    "messageExpression": "'at most 5 replicas, not ' + string(object.spec.replicas)",
                }
            ],
        },
    }
    binding = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "replicas"},
        "spec": {"policyName": "replicas", "validationActions": ["Deny"]},
    }
    lab.apply(json.dumps(policy))
    lab.apply(json.dumps(binding))
    refusal = lab.run("kubectl create deployment many --image=pause --replicas=9", check=False)
    assert "denied request: at most 5 replicas, not 9" in refusal
    lab.run("kubectl create deployment few --image=pause --replicas=1")
    lab.run("kubectl delete deployment few")
    lab.run("kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy replicas")


def test_a_custom_resource_is_read_in_every_version(lab: Outside, program: WebhookProgram) -> None:
    def version(name: str, field: str, storage: bool) -> Json:
        spec = {"type": "object", "properties": {field: {"type": "string"}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        return {"name": name, "served": True, "storage": storage, "schema": schema}

    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "boxes", "kind": "Box"},
            "scope": "Cluster",
            "versions": [version("v1", "size", True), version("v2", "width", False)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": program.client("/convert"), "conversionReviewVersions": ["v1"]},
            },
        },
    }
    lab.apply(json.dumps(definition))
    lab.run("kubectl wait --for condition=established crd/boxes.example.com --timeout=60s")
    box = {"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"size": "3"}}
    lab.apply(json.dumps(box))
    assert lab.run("kubectl get boxes.v2.example.com b -o jsonpath='{.spec.width}'") == "3"
    lab.run("""kubectl patch boxes.v2.example.com b --type merge -p '{"spec":{"width":"4"}}'""")
    assert lab.run("kubectl get boxes.v1.example.com b -o jsonpath='{.spec.size}'") == "4"
    lab.run("kubectl delete crd boxes.example.com")


def test_without_its_program_a_webhook_that_must_answer_stops_new_pods_only(
    lab: Outside, program: WebhookProgram
) -> None:
    program.stop()
    refusal = lab.run("kubectl run alone -n team-a --image=pause", check=False)
    assert 'failed calling webhook "label.policies.example.com"' in refusal
    assert len(lab.json("kubectl get pods -n team-a -l app=web")["items"]) == 2
    lab.run("kubectl run beside -n default --image=pause")
    lab.run("kubectl delete pod beside -n default")
