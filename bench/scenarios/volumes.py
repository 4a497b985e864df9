"""Volumes: problems about claims in every state there is, on nodes that are there and that are not.

Each workload has claims of one state: open in a class that makes volumes or makes none, bound to a disk in a zone, to
one inside a node that is there or is gone, pods' own, shared, or in some trouble.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from bench.scenarios.case import HOST, ZONE, Case, spread
from bench.scenarios.catalogue import EBS, ZONES

Object = dict[str, Any]
_STATIC = "kubernetes.io/no-provisioner"
_DONE = {"pv.kubernetes.io/bind-completed": "yes"}


def voluminous(seed: int) -> Object:
    """A problem of some workloads with volumes beside one without."""
    chance = random.Random(seed)
    case = Case(chance)
    case.pool(capacity=["on-demand"])
    shop = _Shop(case)
    for kind in case.types:
        if chance.random() < 0.5:
            kind["attachLimits"] = {EBS: chance.choice((4, 26))}
    for _ in range(chance.choice((0, 1, 3))):
        shop.node()
    for at, write in enumerate(chance.sample(_STATES, chance.choice((1, 2, 4)))):
        write(shop, f"{write.__name__.strip('_').replace('_', '-')}-{at}")
    case.pods("ballast", chance.choice((5, 20)))
    return {**case.problem(), "name": f"volumes-{seed}"}


class _Shop:
    """A case with nodes that are known by name, and classes, volumes and claims in any state."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.chance = case.chance
        self.nodes: list[str] = []
        self._classes: set[str] = set()

    def node(self) -> None:
        self.case.node(self.chance.choice(ZONES), attach=self.chance.choice((None, 2)))
        self.nodes.append(f"node-{len(self.nodes)}")

    def somewhere(self) -> Object:
        """A term that leads to a node, there or gone, perhaps with its zone."""
        host = self.case.need(HOST, "In", self.chance.choice((*self.nodes, "gone")))
        zone = [self.case.need(ZONE, "In", self.chance.choice(ZONES))] if self.chance.random() < 0.2 else []
        return {"matchExpressions": [host, *zone]}

    def storage_class(self, name: str, provisioner: str = EBS, **more: Any) -> str:
        if name not in self._classes:
            self._classes.add(name)
            made = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
                **more,
            }
            self.case.add(made)
        return name

    def volume(self, name: str, terms: list[Object], storage_class: str = "", source: Object | None = None) -> str:
        affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
        spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": storage_class}
        kind = source or {"csi": {"driver": EBS, "volumeHandle": f"vol-{name}"}}
        self.case.add(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"pv-{name}"},
                "spec": {**spec, **affinity, **kind},
                "status": {"phase": "Available"},
            }
        )
        return f"pv-{name}"

    def users(self, name: str, claim: Callable[[str], str], **spec: Any) -> None:
        """Some pods, each with a claim of its own."""
        for at in range(self.chance.choice((3, 8))):
            own = f"{name}-{at}"
            self.case.pods(name, 1, name=own, cpu="500m", memory="1Gi", claims=[claim(own)], **spec)

    def bound(self, name: str, volume: str) -> str:
        return self.case.claim(name, {"volumeName": volume, "storageClassName": ""}, {"phase": "Bound"}, _DONE)


def _open(shop: _Shop, name: str) -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]} for zone in shop.chance.sample(ZONES, 2)]
    made = shop.storage_class(f"class-{name}", allowedTopologies=[*terms, {"matchLabelExpressions": []}])
    shop.users(name, lambda own: shop.case.open_claim(own, made), topologySpreadConstraints=[spread(name, ZONE)])


def _brought(shop: _Shop, name: str) -> None:
    """A class that makes no volumes; some are free, most of them inside nodes."""
    made = shop.storage_class(f"class-{name}", _STATIC)
    for at in range(shop.chance.choice((0, 2, 6))):
        shop.volume(f"{name}-{at}", [shop.somewhere()], made, {"local": {"path": "/mnt"}})
    if shop.chance.random() < 0.3:
        shop.volume(f"{name}-net", [shop.case.term(ZONE, "In", shop.chance.choice(ZONES))], made)
    shop.users(name, lambda own: shop.case.open_claim(own, made))


def _inside(shop: _Shop, name: str) -> None:
    """Bound to disks inside nodes."""
    source = shop.chance.choice(({"local": {"path": "/mnt"}}, {"hostPath": {"path": "/mnt"}}))
    shop.users(name, lambda own: shop.bound(own, shop.volume(own, [shop.somewhere()], source=source)))


def _either_zone(shop: _Shop, name: str) -> None:
    terms = [shop.case.term(ZONE, "In", ZONES[1]), shop.case.term(ZONE, "In", ZONES[2]), {"matchExpressions": []}]
    shop.users(name, lambda own: shop.bound(own, shop.volume(own, terms)))


def _by_node_name(shop: _Shop, name: str) -> None:
    """A network volume that only one node may use."""
    shop.users(name, lambda own: shop.bound(own, shop.volume(own, [shop.somewhere()])))


def _own(shop: _Shop, name: str) -> None:
    """Pods with volumes of their own, and the claims made for them."""
    made = shop.storage_class("own")
    spec: Object = {"storageClassName": made, "accessModes": ["ReadWriteOnce"]}
    for at in range(3):
        shop.case.claim(f"{name}-{at}-scratch", spec, {"phase": "Pending"}, {})
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    shop.case.pods(name, 3, volumes=[volume])


def _shared(shop: _Shop, name: str) -> None:
    mode = shop.chance.choice(("ReadWriteMany", "ReadWriteOncePod"))
    claim = shop.case.claim(name, {"storageClassName": shop.storage_class("many"), "accessModes": [mode]}, {}, {})
    shop.case.pods(name, 6, claims=[claim], cpu="250m", memory="512Mi")


def _chosen(shop: _Shop, name: str) -> None:
    """Claims for which a node was chosen already."""
    where = {"volume.kubernetes.io/selected-node": shop.chance.choice((*shop.nodes, "gone"))}
    spec = {"storageClassName": shop.storage_class("chosen")}
    shop.users(name, lambda own: shop.case.claim(own, spec, {"phase": "Pending"}, where))


def _troubled(shop: _Shop, name: str) -> None:
    """Claims that cannot be used."""
    spec, status = shop.chance.choice(
        (
            ({"storageClassName": "none"}, {"phase": "Pending"}),
            ({"storageClassName": ""}, {"phase": "Pending"}),
            ({"volumeName": "none", "storageClassName": ""}, {"phase": "Lost"}),
            ({"volumeName": "none", "storageClassName": ""}, {"phase": "Bound"}),
            ({"storageClassName": shop.storage_class("hasty", volumeBindingMode="Immediate")}, {"phase": "Pending"}),
        )
    )
    shop.users(name, lambda own: shop.case.claim(own, spec, status, _DONE if "volumeName" in spec else {}))


_STATES = (_open, _brought, _inside, _either_zone, _by_node_name, _own, _shared, _chosen, _troubled)
