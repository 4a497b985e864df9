"""The definitions of VerticalPodAutoscaler and VerticalPodAutoscalerCheckpoint.

v1 is served and stored. v1beta2 is listed but not served, as in upstream's release: objects that were stored in it
long ago stay readable.
"""

from __future__ import annotations

from typing import Any

from dovetail.autoscalers.vpa.api import CHECKPOINTS, GROUP, VPAS
from dovetail.kube.resources import Resource

Json = dict[str, Any]

_QUANTITY: Json = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}
_TEXT: Json = {"type": "string"}
_TIME: Json = {"type": "string", "format": "date-time"}
_APPROVED = {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"}


def _about(text: str, schema: Json) -> Json:
    return {"description": text, **schema}


def _object(properties: Json, *required: str, about: str = "") -> Json:
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return _about(about, schema) if about else schema


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _enum(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


def _integer(form: str, minimum: int | None = None) -> Json:
    schema: Json = {"type": "integer", "format": form}
    return schema if minimum is None else {**schema, "minimum": minimum}


_RESOURCES: Json = {"type": "object", "additionalProperties": _QUANTITY}


def _startup_boost() -> Json:
    cpu = _object(
        {
            "type": _about("Factor multiplies the CPU request, Quantity adds to it.", _enum("Factor", "Quantity")),
            "factor": _about("By how much the CPU request is multiplied.", _integer("int32")),
            "quantity": _about("How much CPU is added.", _QUANTITY),
            "durationSeconds": _about("How long the boost lasts once the pod is Ready.", _integer("int32")),
        },
        "type",
    )
    cpu["x-kubernetes-validations"] = [
        {
            "rule": "self.type == 'Factor' ? has(self.factor) : !has(self.factor)",
            "message": "factor is required when type is Factor and forbidden otherwise",
        },
        {
            "rule": "self.type == 'Quantity' ? has(self.quantity) : !has(self.quantity)",
            "message": "quantity is required when type is Quantity and forbidden otherwise",
        },
    ]
    return _object({"cpu": cpu}, about="More CPU while containers start.")


def _target_ref() -> Json:
    ref = _object({"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT}, "kind", "name")
    return {**_about("The controller whose pods are autoscaled.", ref), "x-kubernetes-map-type": "atomic"}


def _container_policy(v1: bool) -> Json:
    fields: Json = {
        "containerName": _about("The container, or '*' for all without a policy of their own.", _TEXT),
        "mode": _about("Whether the container is autoscaled.", _enum("Auto", "Off")),
        "minAllowed": _about("No less is recommended.", _RESOURCES),
        "maxAllowed": _about("No more is recommended.", _RESOURCES),
    }
    if v1:
        fields |= {
            "controlledResources": _about("Which of cpu and memory are recommended.", _list(_TEXT)),
            "controlledValues": _about("Whether limits follow requests.", _enum("RequestsAndLimits", "RequestsOnly")),
            "oomBumpUpRatio": _about("Memory after an OOM kill, as a multiple.", _QUANTITY),
            "oomMinBumpUp": _about("Least increase of memory after an OOM kill.", _QUANTITY),
            "memoryAggregationIntervalSeconds": _about(
                "One memory peak is kept for each interval.", _integer("int32", 1)
            ),
            "memoryAggregationIntervalCount": _about(
                "After so many intervals usage is forgotten.", _integer("int64", 1)
            ),
            "startupBoost": _startup_boost(),
        }
    return _object(fields)


def _update_policy(v1: bool) -> Json:
    if not v1:
        return _object({"updateMode": _enum("Off", "Initial", "Recreate", "Auto")})
    requirement = _object(
        {
            "resources": _about("It is met if one of these changes so.", _list(_TEXT)),
            "changeRequirement": _enum("TargetHigherThanRequests", "TargetLowerThanRequests"),
        },
        "changeRequirement",
        "resources",
    )
    modes = _enum("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto")
    return _object(
        {
            "updateMode": _about("When and how recommendations are applied.", modes),
            "minReplicas": _about("Groups with fewer live pods are left alone.", _integer("int32")),
            "evictionRequirements": _about("All must be met for an update.", _list(requirement)),
            "evictAfterOOMSeconds": _about(
                "An OOM kill sooner after the start makes a pod updatable.", _integer("int32", 1)
            ),
        }
    )


def _status(v1: bool) -> Json:
    condition: Json = {
        "type": _TEXT,
        "status": _TEXT,
        "reason": _TEXT,
        "message": _TEXT,
        "lastTransitionTime": _TIME,
    }
    recommendation = _object(
        {
            "containerName": _TEXT,
            "target": _about("What the container should request.", _RESOURCES),
            "lowerBound": _about("With less, the pod is updated.", _RESOURCES),
            "upperBound": _about("With more, the pod is updated.", _RESOURCES),
            "uncappedTarget": _about("The target without the policy's limits.", _RESOURCES),
        },
        "target",
    )
    fields: Json = {
        "recommendation": _object({"containerRecommendations": _list(recommendation)}),
        "conditions": _list(_object(condition, "status", "type")),
    }
    if v1:
        condition["observedGeneration"] = _integer("int64", 0)
        fields["observedGeneration"] = _integer("int64", 0)
    return _object(fields, about="What the recommender found.")


def _vpa_schema(v1: bool) -> Json:
    spec: Json = {
        "targetRef": _target_ref(),
        "updatePolicy": _update_policy(v1),
        "resourcePolicy": _object({"containerPolicies": _list(_container_policy(v1))}),
    }
    if v1:
        recommender = _object({"name": _about("The name of a recommender.", _TEXT)}, "name")
        spec["recommenders"] = _about("The recommender to use; empty is the default one.", _list(recommender))
        spec["startupBoost"] = _startup_boost()
    fields = {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": {"type": "object"},
        "spec": _object(spec, "targetRef", about="Which pods are autoscaled, and how."),
        "status": _status(v1),
    }
    return _object(fields, "spec", about="Sets the requests of pods to what they use.")


def _checkpoint_schema() -> Json:
    nullable = {**_TIME, "nullable": True}
    histogram = _object(
        {
            "referenceTimestamp": nullable,
            "bucketWeights": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "totalWeight": {"type": "number"},
        }
    )
    status = {
        "lastUpdateTime": nullable,
        "version": _TEXT,
        "cpuHistogram": histogram,
        "memoryHistogram": histogram,
        "firstSampleStart": nullable,
        "lastSampleStart": nullable,
        "totalSamplesCount": {"type": "integer"},
    }
    fields = {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": {"type": "object"},
        "spec": _object({"vpaObjectName": _TEXT, "containerName": _TEXT}),
        "status": _object(status),
    }
    return _object(fields, about="What a recommender knows of one container, for the time after its restart.")


_FIRST = ".status.recommendation.containerRecommendations[0].target"
_COLUMNS: list[Json] = [
    {"name": "Mode", "type": "string", "jsonPath": ".spec.updatePolicy.updateMode"},
    {"name": "CPU", "type": "string", "jsonPath": f"{_FIRST}.cpu"},
    {"name": "Mem", "type": "string", "jsonPath": f"{_FIRST}.memory"},
    {
        "name": "Provided",
        "type": "string",
        "jsonPath": ".status.conditions[?(@.type=='RecommendationProvided')].status",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "MinReplicas", "type": "integer", "priority": 1, "jsonPath": ".spec.updatePolicy.minReplicas"},
    {"name": "OOMSeconds", "type": "integer", "priority": 1, "jsonPath": ".spec.updatePolicy.evictAfterOOMSeconds"},
]


def _definition(resource: Resource, short_name: str, versions: list[Json]) -> Json:
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "shortNames": [short_name],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name, "annotations": dict(_APPROVED)},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": versions},
    }


def definitions() -> list[Json]:
    """Both definitions, for `kubectl apply`."""
    checkpoint = {"openAPIV3Schema": _checkpoint_schema()}
    return [
        _definition(
            VPAS,
            "vpa",
            [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _COLUMNS,
                    "schema": {"openAPIV3Schema": _vpa_schema(True)},
                },
                {
                    "name": "v1beta2",
                    "served": False,
                    "storage": False,
                    "deprecated": True,
                    "deprecationWarning": "autoscaling.k8s.io/v1beta2 API is deprecated",
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": _vpa_schema(False)},
                },
            ],
        ),
        _definition(
            CHECKPOINTS,
            "vpacheckpoint",
            [
                {"name": "v1", "served": True, "storage": True, "schema": checkpoint},
                {"name": "v1beta2", "served": False, "storage": False, "schema": checkpoint},
            ],
        ),
    ]
