"""Kinds of networking.k8s.io: stored and checked by their schema alone. Nothing in the lab routes traffic by them."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.base import CountedStrategy, KindStrategy
from dovetail.lab.apiserver.registry import Object
from dovetail.model import formats


class IngressStrategy(CountedStrategy):
    rechecks_all = True
    generation = True
    has_status_subresource = True

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}


class IngressClassStrategy(KindStrategy):
    rechecks_all = True
    generation = True

    def default(self, obj: Object) -> None:
        parameters = (obj.get("spec") or {}).get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"


class NetworkPolicyStrategy(CountedStrategy):
    generation = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("podSelector", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for direction in ("ingress", "egress"):
            for rule in spec.get(direction) or ():
                for port in rule.get("ports") or ():
                    port.setdefault("protocol", "TCP")


class IPAddressStrategy(KindStrategy):
    name_rule = staticmethod(formats.path_segment)
