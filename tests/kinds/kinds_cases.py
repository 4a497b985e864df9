"""Good and bad manifests of the v1 kinds: a base, and one thing changed.

What a real API server with Karpenter's own definitions says to each is recorded in tests/data/kinds/answers.json.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.kinds.kinds_class_cases import GONE, class_fields

Json = dict[str, Any]

POOL: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "case"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "Exists"}],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }
        }
    },
}
CLAIM: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {"name": "case"},
    "spec": copy.deepcopy(POOL["spec"]["template"]["spec"]),
}
OVERLAY: Json = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "case"},
    "spec": {"requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}], "price": "1.0"},
}
CLASS: Json = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "case"},
    "spec": {
        "role": "node",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    },
}
T = "spec.template.spec."
TERM = {"key": "team", "operator": "In", "values": ["a"]}
TAINT = {"key": "team", "effect": "NoSchedule"}


def term(**fields: Any) -> Json:
    return {key: value for key, value in {**TERM, **fields}.items() if value is not GONE}


def _terms() -> Iterator[tuple[str, Any]]:
    for key in (
        "karpenter.sh/nodepool",
        "karpenter.sh/other",
        "sub.karpenter.sh/x",
        "kubernetes.io/hostname",
        "kubernetes.io/anything",
        "k8s.io/x",
        "node-restriction.kubernetes.io/x",
        "karpenter.k8s.aws/instance-family",
        "beta.kubernetes.io/arch",
        "",
        "a/b/c",
        "-bad",
        "A.Upper/x",
        "x" * 317,
        "karpenter.sh",
    ):
        yield f"key {key[:40]}", [term(key=key)]
    for operator in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "in", "", "Equals"):
        for values in ([], ["1"], ["1", "2"], ["x"], ["-1"], GONE):
            shown = "none" if values is GONE else values
            yield f"operator {operator} values {shown}", [term(operator=operator, values=values)]
    for values in (["a b"], ["x" * 64], ["/"], [""], [1], "a", None, ["+5"], ["9" * 20], ["1.5"]):
        yield f"values {str(values)[:30]}", [term(values=values)]
        yield f"Gt values {str(values)[:30]}", [term(operator="Gt", values=values)]
    for least in (0, 1, 2, 50, 51, -1, "1", 1.5):
        yield f"minValues {least!r}", [term(minValues=least)]
        yield f"Exists minValues {least!r}", [term(operator="Exists", values=GONE, minValues=least)]
    yield "two bad of three", [term(values=[]), TERM, term(key="kubernetes.io/hostname")]
    yield "error and refusal", [term(values=GONE), term(values=[])]
    yield "refusal and error", [term(values=[]), term(values=GONE)]
    yield "number error and refusal", [term(operator="Gt", values=["x"]), term(operator="Lt", values=[])]
    yield "empty", []
    yield "null", None
    yield "a string", "team=a"
    yield "an object", {"key": "team"}
    yield "100", [term(key=f"k{index}") for index in range(100)]
    yield "101", [term(key=f"k{index}") for index in range(101)]
    yield "no key", [term(key=GONE)]
    yield "no operator", [term(operator=GONE)]
    yield "stray field", [term(requirements=[])]
    yield "misspelt", [term(operater="In")]


def _taints() -> Iterator[tuple[str, Any]]:
    yield "good", [TAINT, {**TAINT, "value": "x", "effect": "NoExecute"}]
    yield "twice the same", [TAINT, TAINT]
    for key in ("", "a b", "x/y/z", "example.com/x", "???"):
        yield f"key {key}", [{**TAINT, "key": key}]
    for value in ("", "a b", "x/y", "???"):
        yield f"value {value}", [{**TAINT, "value": value}]
    for effect in ("", "NoSchedule", "PreferNoSchedule", "NoExecute", "noschedule"):
        yield f"effect {effect}", [{**TAINT, "effect": effect}]
    yield "no effect", [{"key": "team"}]
    yield "no key", [{"effect": "NoSchedule"}]
    yield "not a list", TAINT


def _pool_fields() -> Iterator[tuple[str, Any]]:
    for text in ("30s", "1h30m", "720h", "Never", "never", "", "-1s", "1d", "0", "1.5h", "0s", "30s Never"):
        yield T + "expireAfter", text
        yield "spec.disruption", {"consolidateAfter": text}
        yield T + "terminationGracePeriod", text
    for policy in ("WhenEmpty", "WhenEmptyOrUnderutilized", "WhenUnderutilized", "Balanced", "", "whenEmpty"):
        yield "spec.disruption", {"consolidateAfter": "0s", "consolidationPolicy": policy}
    yield "spec.disruption", {"consolidationPolicy": "WhenEmpty"}
    yield "spec.disruption", {"expireAfter": "720h"}
    yield "spec.disruption", {}
    yield "spec.disruption", None
    for weight in (0, 1, 100, 101, -1, "5", 1.5):
        yield "spec.weight", weight
    for replicas in (0, 3, -1, "3", 2.5):
        yield "spec.replicas", replicas
    for limits in (
        {"cpu": 10},
        {"cpu": "10"},
        {"cpu": "10x"},
        {"cpu": -1},
        {"memory": "1.5Gi", "nodes": 3},
        {"cpu": 1.5},
        {"cpu": True},
        {},
        "10",
    ):
        yield "spec.limits", limits
    for labels in (
        {"team": "a"},
        {"karpenter.sh/nodepool": "x"},
        {"karpenter.sh/custom": "x"},
        {"karpenter.sh/capacity-type": "spot"},
        {"kubernetes.io/hostname": "x"},
        {"kubernetes.io/custom": "x"},
        {"sub.karpenter.sh/x": "y"},
        {"team": "a b"},
        {"team": "x" * 64},
        {"team": ""},
        {"bad key": "x"},
        {"team": 1},
        {f"k{index}": "v" for index in range(101)},
    ):
        yield "spec.template.metadata", {"labels": labels}
    yield "spec.template.metadata", {"annotations": {"any thing": "goes"}}
    yield "spec.template.metadata", {"name": "x"}
    reference = POOL["spec"]["template"]["spec"]["nodeClassRef"]
    for change in ({"group": ""}, {"kind": ""}, {"name": ""}, {"group": "a/b"}, {"apiVersion": "v1"}):
        yield T + "nodeClassRef", {**reference, **change}
    for missing in ("group", "kind", "name"):
        yield T + "nodeClassRef", {key: value for key, value in reference.items() if key != missing}
    yield T + "nodeClassRef", GONE
    yield T + "requirements", GONE
    yield T + "kubelet", {"maxPods": 1}
    yield T + "resources", {"requests": {"cpu": 1}}
    yield "spec.template", GONE
    yield "spec", GONE
    yield "spec.template.spec", GONE
    yield "spec.template.spec", None
    yield "spec.tempalte", {}


def _budgets() -> Iterator[Any]:
    for nodes in ("10%", "0", "5", "100%", "101%", "-1", "10 %", "1000", "", 5, "50.5%"):
        yield [{"nodes": nodes}]
    for schedule in ("@daily", "@dailyish", "0 9 * * 1-5", "* * * *", "a b c d e", "", "@reboot", "* * * * * *"):
        yield [{"nodes": "1", "schedule": schedule, "duration": "8h"}]
    for duration in ("8h", "30m", "8h30m", "8h30m0s", "10s", "1d", "", "-1h", "30m8h"):
        yield [{"nodes": "1", "schedule": "@daily", "duration": duration}]
    yield [{"nodes": "1", "schedule": "@daily"}]
    yield [{"nodes": "1", "duration": "8h"}]
    for reasons in (["Empty"], ["Empty", "Empty"], ["Expired"], ["Unhealthy", "Drifted", "Underutilized"], []):
        yield [{"nodes": "1", "reasons": reasons}]
    yield []
    yield [{}]
    yield [{"nodes": "1"}] * 51
    yield [{"nodes": "1", "reason": "Empty"}]
    yield None


def _overlay_fields() -> Iterator[tuple[str, Any]]:
    for operator in ("In", "NotIn", "Gt", "Exists", "Gte"):
        for values in ([], ["1"], GONE):
            yield "spec.requirements", [term(operator=operator, values=values)]
    yield "spec.requirements", [term(key="karpenter.sh/nodepool")]
    yield "spec.requirements", [term(key="karpenter.sh/x")]
    yield "spec.requirements", [term(minValues=2)]
    yield "spec.requirements", GONE
    for price in ("0.5", "1", "-1", "", "x", ".5", "1.", 1):
        yield "spec.price", price
    for adjustment in ("+5", "-0.5", "+10%", "-100%", "-101%", "10%", "+.5%", "", "-99.9%"):
        yield "adjustment", adjustment
    yield "spec.priceAdjustment", "+5"
    for capacity in ({"example.com/gpu": 1}, {"cpu": 1}, {"pods": "10"}, {"memory": "1Gi", "x": 1}, {"x": "y"}):
        yield "spec.capacity", capacity
    for weight in (0, 1, 10000, 10001):
        yield "spec.weight", weight


def changed(base: Json, path: str, value: Any) -> Json:
    found = copy.deepcopy(base)
    *way, last = path.split(".")
    place = found
    for key in way:
        place = place[key]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return found


def cases() -> Iterator[tuple[str, Json]]:
    """Name and manifest of every case; names are unique."""
    for count, (name, obj) in enumerate(_cases()):
        yield f"{count:03} {obj['kind']} {name}", obj


def _cases() -> Iterator[tuple[str, Json]]:
    for base in (POOL, CLAIM, OVERLAY, CLASS):
        yield "as it is", base
    for name, terms in _terms():
        yield f"requirements {name}", changed(POOL, T + "requirements", terms)
    for name, terms in list(_terms())[:24]:
        yield f"requirements {name}", changed(CLAIM, "spec.requirements", terms)
    for name, taints in _taints():
        yield f"taints {name}", changed(POOL, T + "taints", taints)
        yield f"startupTaints {name}", changed(CLAIM, "spec.startupTaints", taints)
    for path, value in _pool_fields():
        yield f"{path} {_shown(value)}", changed(POOL, path, value)
    for budgets in _budgets():
        yield f"budgets {_shown(budgets)}", changed(POOL, "spec.disruption", {"budgets": budgets})
    static = changed(POOL, "spec.replicas", 3)
    for limits in ({"nodes": 5}, {"cpu": 5}, {"nodes": 5, "cpu": 5}, {}):
        yield f"static limits {limits}", changed(static, "spec.limits", limits)
    yield "static weight", changed(static, "spec.weight", 5)
    for field in ("resources", "expireAfter", "terminationGracePeriod", "kubelet"):
        for value in ({"requests": {"cpu": "1"}}, "1h", "x"):
            yield f"{field} {_shown(value)}", changed(CLAIM, f"spec.{field}", value)
    for path, value in class_fields():
        yield f"{path} {_shown(value)}", changed(CLASS, path, value)
    yield "no alias, no family", changed(CLASS, "spec.amiSelectorTerms", [{"id": "ami-1"}])
    custom = changed(CLASS, "spec.amiFamily", "Custom")
    yield "no alias, Custom", changed(custom, "spec.amiSelectorTerms", [{"id": "ami-1"}])
    yield "role and profile", changed(CLASS, "spec.instanceProfile", "x")
    for path, value in _overlay_fields():
        if path == "adjustment":
            yield f"adjustment {value}", changed(changed(OVERLAY, "spec.price", GONE), "spec.priceAdjustment", value)
        else:
            yield f"{path} {_shown(value)}", changed(OVERLAY, path, value)


def _shown(value: Any) -> str:
    return "gone" if value is GONE else str(value)[:50]


def moves() -> Iterator[tuple[str, Json, Json]]:
    """Name, object and what it is changed to: transitions that are allowed or not."""
    reference = POOL["spec"]["template"]["spec"]["nodeClassRef"]
    for field in ("group", "kind", "name"):
        yield f"pool {field}", POOL, changed(POOL, T + "nodeClassRef", {**reference, field: "other"})
    static = changed(POOL, "spec.replicas", 3)
    yield "pool becomes static", POOL, static
    yield "pool stops being static", static, POOL
    yield "static pool grows", static, changed(POOL, "spec.replicas", 5)
    yield "claim taints", CLAIM, changed(CLAIM, "spec.taints", [TAINT])
    yield "claim expiry", CLAIM, changed(CLAIM, "spec.expireAfter", "1h")
    yield "claim labels", CLAIM, changed(CLAIM, "metadata", {"name": "case", "labels": {"a": "b"}})
    yield "class role", CLASS, changed(CLASS, "spec.role", "other")
    profile = changed(changed(CLASS, "spec.role", GONE), "spec.instanceProfile", "x")
    yield "class role to profile", CLASS, profile
