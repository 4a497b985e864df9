"""The definition of ProvisioningRequest, with the rules that the API server checks."""

from __future__ import annotations

from typing import Any

from dovetail.autoscalers.node_groups.provisioning_requests import GROUP
from dovetail.kube.resources import PROVISIONINGREQUESTS

Json = dict[str, Any]
MAX_POD_SETS = 32
_TEXT: Json = {"type": "string"}
_PARAMETER: Json = {"type": "string", "maxLength": 255}


def definition() -> Json:
    """For `kubectl apply`."""
    resource = PROVISIONINGREQUESTS
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "shortNames": ["provreq", "provreqs"],
    }
    columns = [
        {"name": kind, "type": "string", "jsonPath": f".status.conditions[?(@.type=='{kind}')].status"}
        for kind in ("Accepted", "Provisioned", "Failed")
    ]
    columns.append({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": _schema()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _schema() -> Json:
    reference = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {**_TEXT, "maxLength": 253, "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}},
    }
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {"count": {"type": "integer", "format": "int32", "minimum": 1}, "podTemplateRef": reference},
    }
    class_name = {
        **_TEXT,
        "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    }
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "podSets": {"type": "array", "minItems": 1, "maxItems": MAX_POD_SETS, "items": pod_set},
            "provisioningClassName": class_name,
            "parameters": {"type": "object", "maxProperties": 100, "additionalProperties": _PARAMETER},
        },
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
    }
    status = {
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "items": _condition(),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "provisioningClassDetails": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 32768},
            },
        },
    }
    properties = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}, "spec": spec, "status": status}
    return {"type": "object", "required": ["spec"], "properties": properties}


def _condition() -> Json:
    return {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "type": {**_TEXT, "maxLength": 316},
            "status": {**_TEXT, "enum": ["True", "False", "Unknown"]},
            "reason": {**_TEXT, "minLength": 1, "maxLength": 1024},
            "message": {**_TEXT, "maxLength": 32768},
            "lastTransitionTime": {**_TEXT, "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        },
    }
