"""Problems about one constraint each, as a user would write them to see whether it is understood.

A seed picks the constraint in turn, so that any run of seeds as long as the list meets all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from bench.scenarios.case import ARCH, CAPACITY, CATEGORY, CPU, FAMILY, HOST, TYPE, ZONE, Case, apart, near, spread
from bench.scenarios.catalogue import EBS, ZONES

Object = dict[str, Any]


def single_constraint(seed: int) -> Object:
    """A problem of 5 to 400 pods about one constraint."""
    chance = random.Random(seed)
    case = Case(chance)
    write = _KINDS[seed % len(_KINDS)]
    write(case)
    if not case.pools:
        case.pool()
    if chance.random() < 0.4:
        case.pods("ballast", chance.choice((5, 20, 60)))
    return {**case.problem(), "name": f"{write.__name__.strip('_')}-{seed}"}


# -- pods: where they may go ---------------------------------------------------------------------------------------


def _requests(case: Case) -> None:
    for name in ("web", "cache", "batch")[: case.chance.choice((1, 2, 3))]:
        case.pods(name)


def _selector(case: Case) -> None:
    for name, key, value in (
        ("zonal", ZONE, ZONES[1]),
        ("arm", ARCH, "arm64"),
        ("family", FAMILY, "r5"),
        ("size", CPU, "8"),
        ("type", TYPE, "c5.2xlarge"),
    ):
        if case.chance.random() < 0.5:
            case.pods(name, nodeSelector={key: value})
    case.pods("any", 5)


def _terms(case: Case) -> None:
    """Required terms of which any will do."""
    terms = [
        case.term(ZONE, "In", ZONES[0]),
        case.term(CATEGORY, "NotIn", "c"),
        case.term(CPU, "Gt", "15"),
        case.term(CPU, "Lt", "9"),
        case.term(CAPACITY, "In", "spot"),
        case.term(FAMILY, "Exists"),
    ]
    for name in ("one", "other"):
        chosen = case.chance.sample(terms, case.chance.choice((1, 2, 3)))
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": chosen}}
        case.pods(name, affinity={"nodeAffinity": required})


def _preferred(case: Case) -> None:
    terms = [
        case.term(ZONE, "In", ZONES[2]),
        case.term(CATEGORY, "In", "r"),
        case.term(CPU, "Gt", "7"),
        case.term(CAPACITY, "In", "on-demand"),
        case.term(ARCH, "In", "arm64"),
    ]
    for name in ("one", "other"):
        chosen = case.chance.sample(terms, case.chance.choice((1, 2, 3)))
        preferences = [{"weight": case.chance.choice((1, 50, 100)), "preference": each} for each in chosen]
        soft = {"preferredDuringSchedulingIgnoredDuringExecution": preferences}
        case.pods(name, affinity={"nodeAffinity": soft})


def _no_room_for_a_preference(case: Case) -> None:
    """A preference that the pool cannot meet."""
    case.pool(needs=[case.need(ZONE, "In", *ZONES[:2])])
    soft = [
        {"weight": 100, "preference": case.term(ZONE, "In", ZONES[2])},
        {"weight": 10, "preference": case.term(ZONE, "In", ZONES[1])},
    ]
    case.pods("web", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": soft}})


def _tolerations(case: Case) -> None:
    case.pool("general")
    case.pool("batch", taints=[{"key": "batch", "value": "yes", "effect": "NoSchedule"}], labels={"kind": "batch"})
    bearing = [{"key": "batch", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]
    case.pods("web")
    case.pods("batch", tolerations=bearing)
    case.pods("bound", tolerations=bearing, nodeSelector={"kind": "batch"})


def _disliked(case: Case) -> None:
    """A pool that would rather not: heavier, alone, or beside a small one."""
    dislike = {"key": "old", "effect": "PreferNoSchedule"}
    case.pool("rather-not", taints=[dislike], weight=case.chance.choice((None, 50)))
    if case.chance.random() < 0.7:
        case.pool("general", limits=case.chance.choice((None, {"cpu": "20"})))
    case.pods("web")
    case.pods("bearing", tolerations=[{"key": "old", "operator": "Exists"}])


# -- pods: each other ----------------------------------------------------------------------------------------------


def _together(case: Case) -> None:
    key = case.chance.choice((ZONE, HOST))
    case.pods("team", 12 if key == HOST else None, affinity=near("team", key), cpu="500m", memory="512Mi")


def _beside(case: Case) -> None:
    """Near another workload of the batch, which asks for nothing or is pinned to a zone."""
    case.pods("db", 3, nodeSelector=case.chance.choice(({}, {ZONE: ZONES[0]})))
    case.pods(
        "web",
        affinity=near("db", case.chance.choice((ZONE, HOST)), soft=case.chance.random() < 0.4),
        cpu="250m",
        memory="256Mi",
    )


def _beside_running(case: Case) -> None:
    for at in range(case.chance.choice((1, 2, 3))):
        case.node(zone=ZONES[at], running=[("db", {})])
    case.pods(
        "web",
        affinity=near("db", case.chance.choice((ZONE, HOST)), soft=case.chance.random() < 0.3),
        cpu="250m",
        memory="256Mi",
    )


def _apart(case: Case) -> None:
    case.pods("alone", case.chance.choice((5, 12, 30)), affinity=apart("alone", HOST), cpu="700m")
    if case.chance.random() < 0.5:
        case.pods("rather-alone", case.chance.choice((5, 12)), affinity=apart("rather-alone", HOST, soft=True))


def _apart_by_zone(case: Case) -> None:
    case.pods("zoned", case.chance.choice((2, 3, 5)), affinity=apart("zoned", ZONE))
    case.pods("web", case.chance.choice((5, 20)), affinity=apart("zoned", case.chance.choice((HOST, ZONE)), soft=True))


def _apart_from_each_other(case: Case) -> None:
    case.pods("red", affinity=apart("blue", HOST))
    case.pods("blue", affinity=apart("red", HOST) if case.chance.random() < 0.5 else {})


def _feared_by_running(case: Case) -> None:
    """Running pods that will not have the new ones near: the inverse of anti-affinity."""
    key = case.chance.choice((HOST, ZONE))
    for at in range(case.chance.choice((1, 2))):
        case.node(zone=ZONES[at], running=[("hermit", {"affinity": apart("web", key)})])
    case.node(zone=ZONES[2], running=[])
    case.pods("web")


def _spread_zones(case: Case) -> None:
    case.pods("web", topologySpreadConstraints=[spread("web", ZONE, maxSkew=case.chance.choice((1, 2, 5)))])


def _spread_beside_running(case: Case) -> None:
    for _ in range(case.chance.choice((1, 2, 4))):
        case.node(zone=case.chance.choice(ZONES[:2]), running=[("web", {})] * case.chance.choice((1, 3)))
    case.pods("web", topologySpreadConstraints=[spread("web", case.chance.choice((ZONE, HOST)))], cpu="300m")


def _spread_hosts(case: Case) -> None:
    rule = spread("web", HOST, maxSkew=case.chance.choice((1, 2, 4)))
    case.pods("web", case.chance.choice((5, 12, 40)), topologySpreadConstraints=[rule])


def _spread_anyway(case: Case) -> None:
    rules = [
        spread("web", key, whenUnsatisfiable="ScheduleAnyway", maxSkew=case.chance.choice((1, 2)))
        for key in case.chance.choice(((ZONE,), (HOST,), (ZONE, HOST)))
    ]
    if case.chance.random() < 0.4:
        case.pool(needs=[case.need(ZONE, "In", *ZONES[:2])])
    case.pods("web", case.chance.choice((5, 12, 40)), topologySpreadConstraints=rules)


def _spread_kinds(case: Case) -> None:
    """Over capacity types, architectures, families or a label of one's own."""
    key = case.chance.choice((CAPACITY, ARCH, FAMILY, "example.com/rack"))
    own = [case.need("example.com/rack", "In", "1", "2", "3", "4")] if key == "example.com/rack" else []
    case.pool(needs=own, capacity=["on-demand", "spot"])
    how = case.chance.choice(("DoNotSchedule", "ScheduleAnyway"))
    case.pods("web", topologySpreadConstraints=[spread("web", key, whenUnsatisfiable=how)])


def _both_spreads(case: Case) -> None:
    case.pods(
        "web",
        case.chance.choice((5, 12, 40)),
        topologySpreadConstraints=[spread("web", ZONE), spread("web", HOST, maxSkew=case.chance.choice((1, 3)))],
    )


def _min_domains(case: Case) -> None:
    least = case.chance.choice((2, 3, 5))
    if case.chance.random() < 0.4:
        case.pool(needs=[case.need(ZONE, "In", *ZONES[:2])])
    case.pods(
        "web", topologySpreadConstraints=[spread("web", ZONE, minDomains=least, maxSkew=case.chance.choice((1, 3)))]
    )


def _affinity_policy(case: Case) -> None:
    """Pods that may use two zones only, and a spread that counts all zones or these."""
    policy = case.chance.choice(("Honor", "Ignore"))
    zones = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [case.term(ZONE, "In", *ZONES[:2])]}
    }
    case.pods(
        "web",
        affinity={"nodeAffinity": zones},
        topologySpreadConstraints=[spread("web", ZONE, nodeAffinityPolicy=policy, maxSkew=case.chance.choice((1, 5)))],
    )


def _taints_policy(case: Case) -> None:
    """A zone that only a tainted pool or node has."""
    case.pool("general", needs=[case.need(ZONE, "In", *ZONES[:2])])
    taints = [{"key": "special", "effect": "NoSchedule"}]
    if case.chance.random() < 0.5:
        case.pool("special", needs=[case.need(ZONE, "In", ZONES[2])], taints=taints)
    else:
        case.node(zone=ZONES[2], taints=taints)
    policy = case.chance.choice(("Honor", "Ignore"))
    case.pods(
        "web",
        topologySpreadConstraints=[spread("web", ZONE, nodeTaintsPolicy=policy, maxSkew=case.chance.choice((1, 4)))],
    )


def _rollout(case: Case) -> None:
    """Two revisions at once; each is spread by itself."""
    rule = spread("web", case.chance.choice((ZONE, HOST)), matchLabelKeys=["pod-template-hash"])
    for at in range(case.chance.choice((0, 2, 3))):
        case.node(zone=ZONES[at], running=[("web", {})] * 2, labels={"pod-template-hash": "old"})
    for revision, count in (("old", 4), ("new", case.chance.choice((5, 12, 40)))):
        case.pods(
            "web",
            count,
            topologySpreadConstraints=[rule],
            labels={"pod-template-hash": revision},
            name=f"web-{revision}",
        )


# -- pods: what they take ------------------------------------------------------------------------------------------


def _ports(case: Case) -> None:
    case.pods("proxy", case.chance.choice((5, 12, 30)), ports=[{"containerPort": 80, "hostPort": 8080}])
    case.pods("other", 5, ports=[{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}])
    if case.chance.random() < 0.5:
        case.daemon("exporter", ports=[{"containerPort": 9100, "hostPort": 9100}])
        case.pods("clash", 2, ports=[{"containerPort": 9100, "hostPort": 9100}])


def _bound_volumes(case: Case) -> None:
    for at in range(case.chance.choice((5, 12, 30))):
        case.pods(f"db{at}", 1, claims=[case.bound_claim(f"data-{at}", case.chance.choice(ZONES))])


def _waiting_volumes(case: Case) -> None:
    zones = case.chance.choice(([], list(ZONES[:2]), [ZONES[1]]))
    case.storage_class("gp3", zones)
    for at in range(case.chance.choice((5, 12, 30))):
        rules = [spread("db", ZONE)] if case.chance.random() < 0.5 and len(zones) != 1 else []
        case.pods(
            "db", 1, claims=[case.open_claim(f"data-{at}", "gp3")], name=f"db-{at}", topologySpreadConstraints=rules
        )


def _attach_limits(case: Case) -> None:
    """Thirty volumes and few to a node, for sale or there; some pods may share one."""
    for kind in case.types:
        kind["attachLimits"] = {EBS: case.chance.choice((3, 5, 26))}
    case.storage_class("gp3", [])
    if case.chance.random() < 0.5:
        case.node(zone=ZONES[0], attach=case.chance.choice((0, 2, 5)))
    if case.chance.random() < 0.4:
        case.pods("web", 40, claims=[case.open_claim("common", "gp3")], cpu="200m", memory="256Mi")
    for at in range(case.chance.choice((5, 30))):
        case.pods("db", 1, claims=[case.open_claim(f"data-{at}", "gp3")], name=f"db-{at}", cpu="100m", memory="128Mi")


def _devices(case: Case) -> None:
    name, count = case.chance.choice((("nvidia.com/gpu", 5), ("vpc.amazonaws.com/pod-eni", None)))
    case.pods("special", count, more={name: case.chance.choice(("1", "1", "2"))})
    case.pods("web", 10)


def _priority(case: Case) -> None:
    """A limit below what all pods need."""
    case.pool(limits={"cpu": case.chance.choice(("8", "16", "40"))})
    for name, priority in (("urgent", 1000), ("usual", 0), ("whenever", -10)):
        case.pods(name, case.chance.choice((5, 12, 30)), priority=priority)


def _init_containers(case: Case) -> None:
    first = {"name": "first", "image": "i", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    beside = {
        "name": "beside",
        "image": "i",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    case.pods("web", initContainers=case.chance.choice(([first], [beside], [beside, first])))


def _disks(case: Case) -> None:
    case.pods("scratch", more={"ephemeral-storage": case.chance.choice(("2Gi", "7Gi"))})


# -- nodes ------------------------------------------------------------------------------------------------------


def _standing(case: Case) -> None:
    for _ in range(case.chance.choice((1, 3, 6))):
        case.node(
            zone=case.chance.choice(ZONES),
            running=[("old", {})] * case.chance.choice((0, 2)),
            state=case.chance.choice(("up", "up", "joining", "claimed", "going")),
        )
    case.pods("web")


def _daemons(case: Case) -> None:
    """Overhead that differs by architecture, by pool or by category."""
    where = case.chance.choice(({ARCH: "amd64"}, {CATEGORY: "m"}, {}))
    case.daemon("agent", cpu="500m", memory="1Gi", nodeSelector=where)
    case.daemon("logs", cpu="100m", memory="100Mi")
    case.pods("web")


def _weights(case: Case) -> None:
    few = case.chance.choice((None, {"cpu": "24"}))
    case.pool("first", weight=100, needs=[case.need(FAMILY, "In", "m5", "r5")], limits=few)
    case.pool("second", weight=10)
    case.pods("web")
    case.pods("arm", 5, nodeSelector={ARCH: "arm64"})


def _limits(case: Case) -> None:
    case.pool(
        limits=case.chance.choice(
            ({"cpu": "16"}, {"cpu": "100"}, {"memory": "64Gi"}, {"nodes": "3"}, {"nodes": "1"}, {"cpu": "0"})
        )
    )
    case.pods("web")


def _startup_taints(case: Case) -> None:
    soon = [{"key": "cni", "value": "soon", "effect": "NoExecute"}]
    case.pool(startup=soon)
    case.node(zone=ZONES[0], state="joining", startup=soon)
    case.pods("web")


def _spot(case: Case) -> None:
    case.pool(capacity=["spot", "on-demand"])
    case.pods("web")
    case.pods("steady", nodeSelector={CAPACITY: "on-demand"})


def _reserved(case: Case) -> None:
    case.reserve(case.chance.choice(("m5.xlarge", "c5.4xlarge")), ZONES[0], case.chance.choice((1, 2, 5)))
    if case.chance.random() < 0.4:
        case.reserve("r5.2xlarge", ZONES[1], 0)
    case.pool(capacity=case.chance.choice((["on-demand", "reserved"], ["on-demand", "spot", "reserved"])))
    case.pods("web", cpu=case.chance.choice(("500m", "1500m")))
    if case.chance.random() < 0.3:
        case.pods("only", 5, nodeSelector={CAPACITY: "reserved"})


def _min_values(case: Case) -> None:
    key = case.chance.choice((TYPE, FAMILY, CATEGORY, CPU))
    least = case.chance.choice((2, 3)) if key != TYPE else case.chance.choice((5, 10, 20))
    case.pool(
        needs=[{**case.need(key, "Exists"), "minValues": least}],
        limits=case.chance.choice((None, None, {"cpu": "100"})),
    )
    case.pods("web")


def _overlay_prices(case: Case) -> None:
    change = case.chance.choice(("-40%", "+30%", "-0.02"))
    case.overlay([case.need(FAMILY, "In", case.chance.choice(("m5", "r5", "c6i")))], priceAdjustment=change)
    if case.chance.random() < 0.3:
        case.overlay([case.need(FAMILY, "In", "m6a")], price="0.01")
    case.pods("web")


def _overlay_devices(case: Case) -> None:
    case.overlay([case.need(FAMILY, "In", "m5", "r5")], capacity={"example.com/fuse": "3"})
    case.pods("web", case.chance.choice((5, 20)), more={"example.com/fuse": "1"})


def _sold_out(case: Case) -> None:
    """Much cannot be had: whole families, a zone, or all spot."""
    gone = case.chance.choice(
        (
            lambda kind, offer: kind["name"].startswith(("c", "m6")),
            lambda kind, offer: offer["zone"] == ZONES[0],
            lambda kind, offer: offer["capacityType"] == "spot",
            lambda kind, offer: case.chance.random() < 0.6,
        )
    )
    for kind in case.types:
        for offer in kind["offerings"]:
            offer["available"] = not gone(kind, offer)
    case.pool(capacity=["spot", "on-demand"])
    rules = [spread("web", ZONE)] if case.chance.random() < 0.5 else []
    case.pods("web", topologySpreadConstraints=rules)


def _zone_prices(case: Case) -> None:
    for kind in case.types:
        for offer in kind["offerings"]:
            offer["price"] = round(offer["price"] * (1 + 0.1 * ZONES.index(offer["zone"])), 5)
    case.pods("web")
    case.pods("level", topologySpreadConstraints=[spread("level", ZONE)])


def _shop(case: Case) -> None:
    """What a small shop runs: a front, a cache apart, a database with volumes, jobs on spot."""
    case.pool("general", capacity=["on-demand"])
    case.pool("spot", capacity=["spot"], taints=[{"key": "spot", "effect": "NoSchedule"}])
    case.storage_class("gp3", [])
    case.daemon("agent")
    case.pods(
        "front",
        case.chance.choice((6, 30)),
        topologySpreadConstraints=[spread("front", ZONE), spread("front", HOST, whenUnsatisfiable="ScheduleAnyway")],
    )
    case.pods("cache", 3, affinity=apart("cache", HOST), memory="4Gi")
    for at in range(3):
        case.pods("db", 1, claims=[case.open_claim(f"data-{at}", "gp3")], name=f"db-{at}", affinity=apart("db", ZONE))
    case.pods("jobs", tolerations=[{"key": "spot", "operator": "Exists"}], cpu="1500m")


_KINDS: tuple[Callable[[Case], None], ...] = (
    _requests,
    _selector,
    _terms,
    _preferred,
    _no_room_for_a_preference,
    _tolerations,
    _disliked,
    _together,
    _beside,
    _beside_running,
    _apart,
    _apart_by_zone,
    _apart_from_each_other,
    _feared_by_running,
    _spread_zones,
    _spread_beside_running,
    _spread_hosts,
    _spread_anyway,
    _spread_kinds,
    _both_spreads,
    _min_domains,
    _affinity_policy,
    _taints_policy,
    _rollout,
    _ports,
    _bound_volumes,
    _waiting_volumes,
    _attach_limits,
    _devices,
    _priority,
    _init_containers,
    _disks,
    _standing,
    _daemons,
    _weights,
    _limits,
    _startup_taints,
    _spot,
    _reserved,
    _min_values,
    _overlay_prices,
    _overlay_devices,
    _sold_out,
    _zone_prices,
    _shop,
)
