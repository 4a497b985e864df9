"""Applications as people deploy them, in a customer's cluster.

Web tiers, caches, queues, databases, schedulers of batches, training: each with the rules that its manual recommends.
Names, labels and numbers are those of EC2; what meets what is left to chance.
"""

from __future__ import annotations

import random
from typing import Any

from bench.preferences_kept import HOSTNAME, ZONE
from bench.scenarios.customer_cluster import (
    ARCH,
    AWS,
    CAPACITY,
    ENI,
    GPU,
    OS,
    TENANT,
    TYPE,
    CustomerCluster,
    affinity_terms,
    box,
    need,
    preferred,
    required,
    spread,
)

Object = dict[str, Any]

_TOTALS = (5, 7, 10, 14, 20, 28, 40, 60, 90, 140, 220, 400)


def applications_in_a_cluster(seed: int) -> Object:
    """A problem of 5 to 400 pods: a customer's cluster and what has just been applied to it."""
    chance = random.Random(seed)
    customer = CustomerCluster(chance)
    total = chance.choice(_TOTALS)
    apps = [app for app in _APPS if customer.has(_WHERE.get(app, "general")) or chance.random() < 0.1]
    while (left := total - customer.waiting) > 0:
        chance.choice(apps)(customer, max(1, min(left, round(chance.lognormvariate(1.8, 0.9)))))
    customer.fleet(chance.choice((0, 0, 2, 4, 8)))
    return {
        "name": f"stack-{seed}",
        "objects": [*customer.pools, *customer.objects],
        "catalog": customer.types,
    }


# -- serving -------------------------------------------------------------------------------------------------------


def _web(it: CustomerCluster, count: int) -> None:
    """Highly available: over zones, and off one another's nodes."""
    name, chance = it.name("web"), it.chance
    rules = [spread(name, ZONE, maxSkew=chance.choice((1, 1, 2)))]
    if it.some(0.3):
        rules[0]["minDomains"] = chance.choice((2, 3))
    if it.some(0.4):
        rules[0]["matchLabelKeys"] = ["pod-template-hash"]
    affinity: Object = {}
    match chance.choice(("apart", "rather-apart", "level", "rather-level")):
        case "apart":
            affinity = {"podAntiAffinity": affinity_terms(name, HOSTNAME)}
            count = min(count, 12)
        case "rather-apart":
            affinity = {"podAntiAffinity": affinity_terms(name, HOSTNAME, 100)}
        case "level":
            rules.append(spread(name, HOSTNAME, maxSkew=chance.choice((2, 3))))
        case "rather-level":
            rules.append(spread(name, HOSTNAME, soft=True))
    it.app(
        name,
        count,
        [box(*chance.choice(((250, 512), (500, 512), (1000, 1536))))],
        namespace="shop",
        topologySpreadConstraints=rules,
        affinity=affinity,
    )


def _mesh(it: CustomerCluster, count: int) -> None:
    """With a proxy beside it from the start, a migration before it, and what its sandbox takes."""
    name = it.name("api")
    proxy = box(100, 128, "proxy", restartPolicy="Always")
    first = box(*it.chance.choice(((2000, 256), (100, 4096))), name="migrate")
    extra: Object = {"overhead": {"cpu": "250m", "memory": "160Mi"}} if it.some(0.4) else {}
    it.app(
        name,
        count,
        [box(400, 700)],
        namespace="shop",
        initContainers=[proxy, first],
        topologySpreadConstraints=[spread(name, ZONE, soft=True, maxSkew=2)],
        **extra,
    )


def _ingress(it: CustomerCluster, count: int) -> None:
    """On ports of the node, so never two of them on one."""
    name, ip = it.name("ingress"), it.chance.choice(({}, {"hostIP": "10.1.1.1"}))
    ports = [{"containerPort": port, "hostPort": port, **ip} for port in (80, 443)]
    it.app(
        name,
        min(count, 8),
        [box(900, 900, ports=ports)],
        priorityClassName="urgent",
        priority=10_000,
        topologySpreadConstraints=[spread(name, ZONE, soft=it.some(0.5))],
    )


def _cheap_web(it: CustomerCluster, count: int) -> None:
    """Would like Arm and spot, new nodes most of all, and takes what there is."""
    preferences = [
        (100, need(ARCH, "In", "arm64")),
        (60, need(CAPACITY, "In", "spot")),
        (5, need(ZONE, "In", it.zones[0])),
        (30, need(f"{AWS}generation", "Gt", "6")),
        (10, need(f"{AWS}category", "NotIn", "t", "r")),
    ]
    chosen = it.chance.sample(preferences, it.chance.choice((1, 2, 3)))
    it.app(
        it.name("front"),
        count,
        [box(300, 600)],
        namespace="shop",
        affinity={"nodeAffinity": preferred(*chosen)},
        tolerations=it.bearing("spot"),
    )


def _controller(it: CustomerCluster, count: int) -> None:
    """Two or three of a kind that had better not die together."""
    name = it.name("operator")
    apart = affinity_terms(name, HOSTNAME, 80)
    apart["preferredDuringSchedulingIgnoredDuringExecution"] += affinity_terms(name, ZONE, 100)[
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    it.app(name, min(count, 3), [box(100, 256)], affinity={"podAntiAffinity": apart}, priority=10_000)


def _sidekick(it: CustomerCluster, count: int) -> None:
    """Next to another application: on its nodes or in its zones, in whichever namespace that is."""
    if not it.names:
        return _web(it, count)
    other, key = it.chance.choice(it.names), it.chance.choice((HOSTNAME, ZONE))
    shop = {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}
    where: Object = it.chance.choice(
        ({"namespaceSelector": {}}, {"namespaces": ["shop", "data"]}, {"namespaceSelector": shop})
    )
    weight = it.chance.choice((None, 50, 100))
    it.app(
        it.name("helper"),
        min(count, 10),
        [box(100, 128)],
        affinity={"podAffinity": affinity_terms(other, key, weight, **where)},
    )
    return None


def _shy(it: CustomerCluster, count: int) -> None:
    """Noisy neighbours: never beside an application that others deployed, or with their own kind in a zone."""
    name = it.name("noisy")
    other = it.chance.choice(it.names) if it.names and it.some(0.7) else name
    key = ZONE if other == name and it.some(0.3) else HOSTNAME
    it.app(
        name,
        min(count, len(it.zones) if key == ZONE else 15),
        [box(1500, 1024)],
        affinity={"podAntiAffinity": affinity_terms(other, key, namespaceSelector={})},
    )


# -- state ---------------------------------------------------------------------------------------------------------


def _queue(it: CustomerCluster, count: int) -> None:
    """Brokers with a disk each: one to a node, over three zones."""
    name = it.name("kafka")
    it.storage_class("gp3", it.zones[:3] if it.some(0.5) else [])
    claims = [it.claim_template("data", "gp3"), *([it.claim_template("logs", "gp3")] if it.some(0.3) else [])]
    it.app(
        name,
        min(count, 9),
        [box(*it.chance.choice(((1000, 4096), (2000, 8192))))],
        kind="StatefulSet",
        namespace="data",
        claims=claims,
        affinity={"podAntiAffinity": affinity_terms(name, HOSTNAME)},
        topologySpreadConstraints=[spread(name, ZONE, minDomains=min(3, len(it.zones)))],
    )


def _cache(it: CustomerCluster, count: int) -> None:
    """Replicas whose disks lie in zones already."""
    name = it.name("redis")
    memory = need(f"{AWS}category", "In", "r", "x")
    for at in range(min(count, 6)):
        disk = it.bound(f"data-{name}-{at}", it.zones[at % min(3, len(it.zones))], "data")
        it.app(
            f"{name}-{at}",
            1,
            [box(500, it.chance.choice((3072, 6144)))],
            namespace="data",
            affinity={
                "podAntiAffinity": affinity_terms(name, HOSTNAME, it.chance.choice((None, 100))),
                "nodeAffinity": preferred((70, memory)),
            },
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": disk}}],
        )


def _database(it: CustomerCluster, count: int) -> None:
    """On demand, with memory or fast disks: any of two kinds of node."""
    fast = [need(f"{AWS}local-nvme", "Gt", "200"), need(CAPACITY, "In", "on-demand", "reserved")]
    large = [need(f"{AWS}memory", "Gt", "30000"), need(f"{AWS}cpu", "Lt", "33"), need(CAPACITY, "NotIn", "spot")]
    name, key = it.name("postgres"), it.chance.choice((HOSTNAME, ZONE))
    it.app(
        name,
        min(count, 4),
        [box(3000, 14_000)],
        namespace="data",
        affinity={
            "nodeAffinity": required(*it.chance.choice(([large], [fast, large]))),
            "podAntiAffinity": affinity_terms(name, key, it.chance.choice((None, 100))),
        },
    )


def _search(it: CustomerCluster, count: int) -> None:
    """Over zones and over kinds of capacity, with disks that are made where the pod goes."""
    name = it.name("search")
    it.storage_class("gp3", [])
    it.app(
        name,
        min(count, 20),
        [box(800, 3000)],
        kind="StatefulSet",
        claims=[it.claim_template("index", "gp3")],
        namespace="data",
        topologySpreadConstraints=[
            spread(name, ZONE, nodeAffinityPolicy="Honor", nodeTaintsPolicy="Honor"),
            spread(name, CAPACITY, soft=True),
        ],
    )


# -- batches -------------------------------------------------------------------------------------------------------


def _cron(it: CustomerCluster, count: int) -> None:
    """Many small jobs that can wait."""
    for size in it.chance.sample(((50, 64), (200, 1024), (700, 256), (1200, 2500)), 2):
        it.app(
            it.name("job"),
            max(1, count // 2),
            [box(*size)],
            kind="Job",
            namespace="batch",
            priorityClassName="idle",
            priority=-100,
            tolerations=it.bearing("spot"),
        )


def _builders(it: CustomerCluster, count: int) -> None:
    """Whole cores on large nodes that are not Graviton and have no accelerator."""
    needs = [
        need(f"{AWS}cpu", "Gt", "7"),
        need(f"{AWS}cpu-manufacturer", "NotIn", "aws"),
        need(f"{AWS}gpu-count", "DoesNotExist"),
    ]
    disk: Object = {"ephemeral-storage": "4Gi"} if it.some(0.4) else {}
    made = box(it.chance.choice((2000, 3500, 7000)), 4096)
    made["resources"]["requests"] |= disk
    it.app(
        it.name("build"),
        count,
        [made],
        namespace="batch",
        affinity={"nodeAffinity": required(needs)},
        tolerations=it.bearing("spot"),
    )


def _training(it: CustomerCluster, count: int) -> None:
    """GPUs, of a make if it can be had; together in a zone."""
    name, made = it.name("train"), box(*it.chance.choice(((2000, 8000), (3500, 14_000))))
    made["resources"]["requests"][GPU] = it.chance.choice(("1", "1", "2", "4"))
    affinity: Object = {"nodeAffinity": preferred((100, need(f"{AWS}gpu-name", "In", "a10g")))}
    if it.some(0.4):
        affinity["podAffinity"] = affinity_terms(name, ZONE)
    it.app(name, min(count, 8), [made], kind="Job", namespace="batch", affinity=affinity, tolerations=it.bearing("gpu"))


def _secured(it: CustomerCluster, count: int) -> None:
    """A network interface of its own for each, or a device that an overlay knows of."""
    made = box(250, 512)
    made["resources"]["requests"][it.chance.choice((ENI, ENI, "example.com/fuse"))] = "1"
    it.app(it.name("pay"), count, [made], namespace="shop")


def _tenant(it: CustomerCluster, count: int) -> None:
    """On nodes of one's own, over whatever zones those have."""
    name, colour = it.name("tenant"), it.chance.choice(("red", "blue"))
    it.app(
        name,
        count,
        [box(600, 900)],
        nodeSelector={TENANT: colour},
        tolerations=it.bearing("tenants"),
        topologySpreadConstraints=[
            spread(name, it.chance.choice((ZONE, HOSTNAME)), nodeTaintsPolicy="Honor", maxSkew=it.chance.choice((1, 4)))
        ],
    )


def _windows(it: CustomerCluster, count: int) -> None:
    it.app(
        it.name("legacy"),
        min(count, 6),
        [box(1000, 3000)],
        nodeSelector={OS: "windows"},
        tolerations=it.bearing("windows"),
    )


def _picky(it: CustomerCluster, count: int) -> None:
    """A type that was measured once, or a family, or anything but."""
    kind = it.chance.choice(it.types)
    family = kind["labels"][f"{AWS}family"][0]
    chosen = it.chance.choice(
        (
            need(TYPE, "In", kind["name"]),
            need(f"{AWS}family", "NotIn", family),
            need(ZONE, "NotIn", it.zones[-1]),
            need(f"{AWS}size", "In", "xlarge", "2xlarge"),
            need(f"{AWS}network-bandwidth", "Gt", "5000"),
            need(f"{AWS}ebs-bandwidth", "Lt", "5000"),
        )
    )
    made = box(it.chance.choice((150, 900)), 1100)
    it.app(it.name("tuned"), count, [made], affinity={"nodeAffinity": required([chosen])})


_APPS = (
    _web,
    _web,
    _web,
    _mesh,
    _ingress,
    _cheap_web,
    _cheap_web,
    _controller,
    _sidekick,
    _shy,
    _queue,
    _cache,
    _database,
    _search,
    _cron,
    _cron,
    _builders,
    _training,
    _secured,
    _tenant,
    _windows,
    _picky,
)
#: Those that need a pool of their own; sometimes they are deployed where there is none.
_WHERE = {_training: "gpu", _tenant: "tenants", _windows: "windows"}
