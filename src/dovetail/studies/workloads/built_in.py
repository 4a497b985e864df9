"""The built-in workloads. A seed changes the load: a few percent more or less, a few minutes sooner or later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dovetail.chance import Chance
from dovetail.lab.scenario.schema import convert
from dovetail.lab.simulated_groups import GroupSpec
from dovetail.language import source
from dovetail.studies.workloads import objects
from dovetail.studies.workloads.objects import Json
from dovetail.studies.workloads.workload import Workload

MINUTE_S, HOUR_S = 60, 3600
_CATEGORY = "karpenter.k8s.aws/instance-category"


class WorkloadParts(NamedTuple):
    """What a workload is made of."""

    duration: str
    manifests: list[Json]
    groups: tuple[GroupSpec, ...]
    steps: Sequence[Json] = ()
    start: str = "2026-01-01T00:00:00Z"
    market: Mapping[str, Any] = MappingProxyType({})


class BuiltIn(NamedTuple):
    """`title` and `about` are texts of the catalogue."""

    title: str
    about: str
    make: Callable[[Chance], WorkloadParts]


def build(name: str, seed: int) -> Workload:
    """A built-in workload with the load of a seed."""
    chosen = BUILT_IN[name]
    parts = chosen.make(Chance(seed).child("workload", name))
    document = {
        "name": name,
        "duration": parts.duration,
        "start": parts.start,
        "cluster": {"pools": []},
        "autoscaler": {"region": objects.REGION, "market": dict(parts.market)},
        "steps": list(parts.steps),
    }
    return Workload(
        name=name,
        title=chosen.title,
        scenario=convert(document, name),
        manifests=tuple(parts.manifests),
        groups=parts.groups,
    )


def _about(chance: Chance, value: float, share: float = 0.05) -> float:
    """A value, up to that share more or less."""
    return value * (1.0 + chance.uniform(-share, share))


def _rates(chance: Chance, points: Mapping[int, float]) -> str:
    """Requests a second over the day."""
    return ",".join(f"{hour}h={_about(chance, rate):.0f}" for hour, rate in points.items())


def _web_day(chance: Chance) -> WorkloadParts:
    """A shop: load climbs in the morning, peaks at noon and in the evening; one front end of it, an API and workers."""
    rates = _rates(chance, {0: 120, 6: 60, 9: 420, 12: 700, 15: 480, 20: 820, 23: 260})
    manifests = [
        objects.node_pool(),
        objects.service("shop"),
        objects.deployment(
            "shop",
            48,
            "500m",
            "1Gi",
            model={"cpu-per-request": "20m", "memory": "420Mi", "ready-seconds": "5"},
            spread_zones=True,
        ),
        objects.budget("shop"),
        objects.horizontal("shop", 6, 60),
        objects.vertical("shop"),
        objects.deployment("api", 6, "2", "4Gi", model={"cpu": "250m", "memory": "600Mi"}, spread_zones=True),
        objects.budget("api", 1),
        objects.vertical("api"),
        objects.deployment("worker", 4, "500m", "3Gi", model={"cpu": "350m", "memory": "2200Mi"}),
        objects.deployment(
            "visitors", 1, "50m", "64Mi", model={"asks": "shop", "requests-per-second": rates, "cpu": "20m"}
        ),
    ]
    return WorkloadParts("1d", manifests, objects.groups("m5.xlarge"))


def _web(chance: Chance) -> WorkloadParts:
    """The shop from the afternoon through the peak of the evening into the night."""
    return _web_day(chance)._replace(duration="6h", start="2026-01-01T17:00:00Z")


def _batch(chance: Chance) -> WorkloadParts:
    """A small service all day, and jobs that come in bursts."""
    steps: list[Json] = []
    for number, (hour, count, cpu, memory) in enumerate(
        ((1, 60, "1", "2Gi"), (2, 24, "2", "4Gi"), (4, 90, "500m", "2Gi"), (5, 40, "1", "6Gi"))
    ):
        start_s = hour * HOUR_S + chance.uniform(0.0, 10.0) * MINUTE_S
        burst = objects.job(f"burst-{number}", round(_about(chance, count)), cpu, memory, _about(chance, 900.0, 0.2))
        steps.append({"at": f"{start_s:.0f}s", "apply": burst})
    manifests = [
        objects.node_pool(),
        objects.deployment("api", 6, "500m", "1Gi", model={"cpu": "150m", "memory": "300Mi"}, spread_zones=True),
        objects.budget("api", 1),
        objects.vertical("api"),
    ]
    return WorkloadParts("6h", manifests, objects.groups("m5.2xlarge"), steps)


def _spot(chance: Chance) -> WorkloadParts:
    """A stateless service on spot capacity that EC2 takes back now and then."""
    steps = [
        {"at": f"{hour * HOUR_S + chance.uniform(0.0, 25.0) * MINUTE_S:.0f}s", "interrupt": {"instances": count}}
        for hour, count in ((1, 1), (2, 1), (3, 2), (4, 1), (5, 1))
    ]
    manifests = [
        objects.node_pool(capacity_types=("spot", "on-demand"), budget="20%"),
        objects.deployment(
            "web", round(_about(chance, 60)), "500m", "1Gi", model={"cpu": "250m", "memory": "600Mi"}, spread_zones=True
        ),
        objects.budget("web"),
        objects.vertical("web"),
        objects.deployment("cache", 6, "1", "6Gi", model={"cpu": "300m", "memory": "5Gi"}),
    ]
    return WorkloadParts("6h", manifests, objects.groups("m5.xlarge", "spot", capacity_type="spot"), steps)


_GPU_TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
_ON_GPU: Json = {
    "nodeSelector": {"workload": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}


def _ml(chance: Chance) -> WorkloadParts:
    """Inference that always runs, and training jobs of one to four GPUs."""
    steps: list[Json] = []
    for number, (hour, jobs, gpus, cpu) in enumerate(
        ((1, 6, 1, "3"), (2, 2, 4, "20"), (4, 8, 1, "3"), (6, 1, 4, "20"))
    ):
        start_s = hour * HOUR_S + chance.uniform(0.0, 15.0) * MINUTE_S
        training = objects.job(
            f"training-{number}",
            jobs,
            cpu,
            f"{12 * gpus}Gi",
            _about(chance, 2700.0, 0.2),
            pod=_ON_GPU,
            extra_requests={"nvidia.com/gpu": str(gpus)},
        )
        steps.append({"at": f"{start_s:.0f}s", "apply": training})
    gpu_types = [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g4dn", "g5"]}]
    manifests = [
        objects.node_pool(),
        objects.node_pool("gpu", requirements=gpu_types, labels={"workload": "gpu"}, taints=[_GPU_TAINT]),
        objects.deployment(
            "inference",
            2,
            "2",
            "8Gi",
            model={"cpu": "900m", "memory": "5Gi"},
            pod=_ON_GPU,
            extra_requests={"nvidia.com/gpu": "1"},
        ),
        objects.deployment("api", 6, "500m", "1Gi", model={"cpu": "120m", "memory": "400Mi"}, spread_zones=True),
        objects.vertical("api"),
    ]
    groups = (
        *objects.groups("m5.xlarge"),
        *objects.groups("g4dn.xlarge", "gpu", zones=objects.ZONES[:1], labels={"workload": "gpu"}, taints=[_GPU_TAINT]),
        *objects.groups(
            "g4dn.12xlarge", "gpu-large", zones=objects.ZONES[:1], labels={"workload": "gpu"}, taints=[_GPU_TAINT]
        ),
    )
    return WorkloadParts("8h", manifests, groups, steps)


def _services(chance: Chance) -> WorkloadParts:
    """Forty small services of many shapes, some of which grow, shrink and go."""
    shapes = (("50m", "128Mi"), ("100m", "256Mi"), ("200m", "512Mi"), ("250m", "1Gi"), ("500m", "512Mi"))
    manifests: list[Json] = [objects.node_pool()]
    steps: list[Json] = []
    for number in range(40):
        name, (cpu, memory) = f"service-{number:02d}", shapes[number % len(shapes)]
        replicas = 2 + number % 4
        use = {"cpu": f"{int(cpu[:-1]) // 3}m", "memory": "100Mi"}
        manifests.append(objects.deployment(name, replicas, cpu, memory, model=use))
        if number % 4 == 0:
            manifests += [objects.vertical(name), objects.budget(name, 1)]
        if number % 3 == 0:
            for hour, factor in ((1, 3), (3, 1)):
                hour_s = hour * HOUR_S + chance.uniform(0.0, 40.0) * MINUTE_S
                steps.append({"at": f"{hour_s:.0f}s", "scale": {"name": name, "replicas": replicas * factor}})
        elif number % 10 == 7:
            hour_s = 4 * HOUR_S + chance.uniform(0.0, 40.0) * MINUTE_S
            steps.append({"at": f"{hour_s:.0f}s", "delete": {"kind": "Deployment", "name": name}})
    return WorkloadParts("6h", manifests, objects.groups("m5.large"), steps)


def _rolling(chance: Chance) -> WorkloadParts:
    """Eight services of ten pods, each of which is deployed anew once or twice."""
    manifests: list[Json] = [objects.node_pool()]
    steps: list[Json] = []
    for number in range(8):
        name, cpu = f"app-{number}", ("250m", "500m", "750m", "1")[number % 4]
        model = {"cpu": "120m", "memory": "400Mi", "ready-seconds": "10"}
        manifests += [
            objects.deployment(name, 10, cpu, "1Gi", model=model, spread_zones=number % 2 == 0),
            objects.budget(name),
        ]
        for release in range(1 + number % 2):
            start_s = (1 + 2 * release) * HOUR_S + (8 * number + chance.uniform(0.0, 5.0)) * MINUTE_S
            template = {"metadata": {"annotations": {"release": str(release + 1)}}}
            body = {"spec": {"template": template}}
            steps.append({"at": f"{start_s:.0f}s", "patch": {"kind": "Deployment", "name": name, "body": body}})
    return WorkloadParts("5h", manifests, objects.groups("m5.xlarge"), steps)


def _walk_through(chance: Chance) -> WorkloadParts:
    """The Korean walk-through of all four autoscalers: php-apache under load, the hamsters, and ten pods of nginx."""
    shell = ["/bin/sh"]
    load = "while sleep 0.01; do wget -q -O- http://php-apache; done"
    busy = "while true; do timeout 0.5s yes >/dev/null; sleep 0.5s; done"
    php = objects.deployment("php-apache", 1, "200m", "128Mi", limits={"cpu": "500m"})
    php["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.k8s.io/hpa-example"
    hamster = objects.deployment("hamster", 2, "100m", "50Mi")
    hamster["spec"]["template"]["spec"]["containers"][0] |= {
        "image": "registry.k8s.io/ubuntu-slim:0.1",
        "command": shell,
        "args": ["-c", busy],
    }
    generator = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "load-generator"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "load-generator",
                    "image": "busybox:1.28",
                    "command": [*shell, "-c", load],
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }
            ],
        },
    }
    nginx = objects.deployment("nginx-test", 10, "500m", "512Mi", limits={"cpu": "500m", "memory": "512Mi"})
    begin = 20 * MINUTE_S + chance.uniform(0.0, 60.0)
    steps: list[Json] = [
        {"at": f"{begin:.0f}s", "apply": generator},
        {"at": f"{begin + 600:.0f}s", "delete": {"kind": "Pod", "name": "load-generator"}},
        {"at": "50m", "apply": nginx},
        {"at": "90m", "delete": {"kind": "Deployment", "name": "nginx-test"}},
    ]
    manifests = [
        objects.node_pool(
            capacity_types=("spot", "on-demand"),
            requirements=[
                {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r", "t"]}
            ],
            consolidate_after="30s",
            budget="100%",
        ),
        objects.service("php-apache"),
        php,
        objects.horizontal("php-apache", 1, 10, 50),
        hamster,
        objects.vertical("hamster", {"cpu": "100m", "memory": "50Mi"}, {"cpu": "1", "memory": "500Mi"}),
    ]
    groups = (
        *objects.groups("t2.medium", "eks-cluster-ng", zones=objects.ZONES[:1], min_size=1, max_size=1),
        *objects.groups("t3.small", "spot-ng", zones=objects.ZONES[:1], capacity_type="spot", min_size=1, max_size=5),
    )
    return WorkloadParts("2h30m", manifests, groups, steps)


BUILT_IN: Mapping[str, BuiltIn] = {
    "web": BuiltIn(
        source("a web shop through its evening"),
        source("Six hours: load climbs to its peak at eight in the evening and falls towards the night."),
        _web,
    ),
    "web-day": BuiltIn(
        source("a web shop over a day"),
        source("The same shop over 24 h, with the peaks of noon and evening and the quiet of the night."),
        _web_day,
    ),
    "batch": BuiltIn(
        source("batch jobs in bursts"),
        source("A small service, and four bursts of jobs of about fifteen minutes each."),
        _batch,
    ),
    "spot": BuiltIn(
        source("a service on spot with interruptions"),
        source("Sixty pods on spot capacity; EC2 takes six instances back in the course of six hours."),
        _spot,
    ),
    "ml": BuiltIn(
        source("training and inference on GPUs"),
        source("Inference that always runs, and training jobs of one to four GPUs."),
        _ml,
    ),
    "services": BuiltIn(
        source("many small services"),
        source("Forty services of five shapes; a third of them grows and shrinks, four are deleted."),
        _services,
    ),
    "rolling": BuiltIn(
        source("rolling deployments"),
        source("Eight services of ten pods, each deployed anew once or twice."),
        _rolling,
    ),
    "walk-through": BuiltIn(
        source("the walk-through of HPA, VPA, CA and Karpenter"),
        source("php-apache under load, two hamsters, then ten pods of nginx, on the walk-through's node groups."),
        _walk_through,
    ),
}
