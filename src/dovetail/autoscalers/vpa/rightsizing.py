"""What workloads request, what they use, and what VPA would set for them.

A workload whose usage is not known long enough is left as it is, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from dovetail.autoscalers.vpa.api import (
    REQUESTS_AND_LIMITS,
    VerticalPodAutoscaler,
    amounts,
    container_policy,
    controlled_values,
    texts,
)
from dovetail.autoscalers.vpa.estimators import EstimatorSettings, pod_estimates
from dovetail.autoscalers.vpa.histogram import Histogram
from dovetail.autoscalers.vpa.model import PodHistory
from dovetail.autoscalers.vpa.proportions import proportional_limits
from dovetail.autoscalers.vpa.recommendation import FormatSettings, pod_recommendation
from dovetail.autoscalers.vpa.usage import DAY_S, Aggregation, ContainerUsage
from dovetail.language import message
from dovetail.model.pods import Container, Pod
from dovetail.model.quantity import milli, whole

CONTROLLED_RESOURCES = ("cpu", "memory")
#: Shorter histories are not acted on: it is the time after which VPA's bounds have confidence 1.
MIN_HISTORY_S = DAY_S
#: Fewer CPU samples say nothing, however long they reach back.
MIN_SAMPLES = 20
#: A CronJob names its Jobs after itself and the minute of their schedule.
_JOB_OF_CRONJOB = re.compile(r"(.+)-\d{8,10}")


class WorkloadKey(msgspec.Struct, frozen=True, order=True):
    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


class ContainerAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One container: amounts as Kubernetes writes them. `above` is how often usage was more than the proposal."""

    name: str
    requests: dict[str, str]
    limits: dict[str, str]
    used: dict[str, str]
    proposed: dict[str, str]
    proposed_limits: dict[str, str]
    above: dict[str, float]


class WorkloadAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One workload. `unknown` says why nothing is proposed; then it stays as it is in every plan.

    `scaled_by` has the HPA that holds a percentage of the requests of a resource: other requests would be another
    number of pods, so nothing is proposed for that resource.
    """

    key: WorkloadKey
    pods: int
    containers: list[ContainerAdvice]
    history_s: float
    samples: int
    unknown: str = ""
    scaled_by: dict[str, str] = {}
    saving_per_month: float | None = None

    @property
    def is_proposal(self) -> bool:
        return not self.unknown and any(container.proposed for container in self.containers)


def workload_of(pod: Pod) -> WorkloadKey:
    """The workload that a pod belongs to: a Deployment behind its ReplicaSet, a CronJob behind its Job.

    A pod without a controller is its own.
    """
    namespace = pod.metadata.namespace or "default"
    owner = pod.metadata.controller
    if owner is None:
        return WorkloadKey(namespace, "Pod", pod.metadata.name)
    if owner.kind == "ReplicaSet":
        suffix = pod.metadata.labels.get("pod-template-hash")
        if suffix and owner.name.endswith(f"-{suffix}"):
            return WorkloadKey(namespace, "Deployment", owner.name.removesuffix(f"-{suffix}"))
    if owner.kind == "Job" and (scheduled := _JOB_OF_CRONJOB.fullmatch(owner.name)):
        return WorkloadKey(namespace, "CronJob", scheduled[1])
    return WorkloadKey(namespace, owner.kind, owner.name)


class UsageEvidence:
    """What is known of the usage of workloads' containers, from all sources together."""

    def __init__(self) -> None:
        self._usages: dict[tuple[WorkloadKey, str], Aggregation] = {}
        self._containers: dict[tuple[str, str], ContainerUsage] = {}

    def add_samples(self, pod: Pod, container: str, samples: Iterable[tuple[float, int | None, int | None]]) -> None:
        """Samples of one container in order of time: seconds since 1970, milli-cores, bytes; None if not measured."""
        usage = self._usage(f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}", workload_of(pod), container)
        for time_s, millicores, size_bytes in samples:
            if millicores is not None:
                usage.add_cpu(millicores, time_s)
            if size_bytes is not None:
                usage.add_memory(size_bytes, time_s)

    def add_history(self, key: WorkloadKey, history: PodHistory) -> None:
        for container, samples in history.samples.items():
            usage = self._usage(f"{history.namespace}/{history.name}", key, container)
            for sample in samples:
                if sample.resource == "cpu":
                    usage.add_cpu(sample.amount, sample.time_s)
                else:
                    usage.add_memory(sample.amount, sample.time_s)

    def add_checkpoint(self, key: WorkloadKey, container: str, usage: Aggregation) -> None:
        self._whole(key, container).merge(usage)

    def of(self, key: WorkloadKey, container: str) -> Aggregation | None:
        return self._usages.get((key, container))

    def _usage(self, pod: str, key: WorkloadKey, container: str) -> ContainerUsage:
        held = self._containers.get((pod, container))
        if held is None:
            held = self._containers[pod, container] = ContainerUsage(self._whole(key, container))
        return held

    def _whole(self, key: WorkloadKey, container: str) -> Aggregation:
        held = self._usages.get((key, container))
        if held is None:
            held = self._usages[key, container] = Aggregation()
        return held


def share_above(histogram: Histogram, amount: float) -> float:
    """The share of weight in buckets that begin at or above an amount: how often more than that was used."""
    held = [
        (bucket, weight)
        for bucket, weight in histogram.weights.items()
        if histogram.lowest <= bucket <= histogram.highest
    ]
    total = sum(weight for _, weight in held)
    above = sum(weight for bucket, weight in held if histogram.buckets.start(bucket) >= amount)
    return above / total if total > 0 else 0.0


def advise(
    pods: Sequence[Pod],
    evidence: UsageEvidence,
    vpas: Mapping[WorkloadKey, VerticalPodAutoscaler],
    *,
    estimators: EstimatorSettings,
    scaled_by: Mapping[WorkloadKey, Mapping[str, str]] | None = None,
    min_history_s: float = MIN_HISTORY_S,
    min_samples: int = MIN_SAMPLES,
) -> list[WorkloadAdvice]:
    """What VPA would set for each workload; with a VPA object, under its policies.

    `scaled_by` has the HPAs of workloads by the resource whose requests they hold a percentage of.
    """
    members: dict[WorkloadKey, list[Pod]] = {}
    for pod in pods:
        members.setdefault(workload_of(pod), []).append(pod)
    advice = []
    for key in sorted({*members, *vpas}):
        if key not in members:
            why = message("none of its pods is known, so neither are its requests")
            advice.append(WorkloadAdvice(key=key, pods=0, containers=[], history_s=0.0, samples=0, unknown=why))
            continue
        template, vpa = members[key][0], vpas.get(key)
        policy = vpa.spec.resource_policy if vpa is not None else None
        usages = {
            container.name: usage
            for container in template.spec.containers
            if (usage := evidence.of(key, container.name)) is not None
        }
        history_s = min((_covered_s(usage) for usage in usages.values()), default=0.0)
        samples = min((usage.samples for usage in usages.values()), default=0)
        unknown = _unknown(template, usages, history_s, samples, min_history_s, min_samples)
        held = dict((scaled_by or {}).get(key, {}))
        proposals = {} if unknown else _proposals(usages, vpa, estimators, held)
        follow = {
            container.name: controlled_values(container.name, policy) == REQUESTS_AND_LIMITS
            for container in template.spec.containers
        }
        advice.append(
            WorkloadAdvice(
                key=key,
                pods=sum(key.kind != "DaemonSet" or bool(pod.spec.node_name) for pod in members[key]),
                containers=[
                    _container(container, usages.get(container.name), proposals.get(container.name, {}), follow)
                    for container in template.spec.containers
                ],
                history_s=history_s,
                samples=samples,
                unknown=unknown,
                scaled_by=held,
            )
        )
    return advice


def _proposals(
    usages: Mapping[str, Aggregation],
    vpa: VerticalPodAutoscaler | None,
    estimators: EstimatorSettings,
    held: Collection[str],
) -> dict[str, dict[str, str]]:
    """Requests by container, of the resources that a VPA controls and no HPA holds."""
    policy = vpa.spec.resource_policy if vpa is not None else None
    considered, controlled = {}, {}
    for name, usage in usages.items():
        own = container_policy(name, policy)
        if own is None or own.mode != "Off":
            considered[name] = usage
            resources = own.controlled_resources if own is not None else None
            named = CONTROLLED_RESOURCES if resources is None else resources
            controlled[name] = tuple(resource for resource in named if resource not in held)
    estimates = pod_estimates(considered, estimators, controlled)
    annotations = vpa.metadata.annotations if vpa is not None else {}
    recommended = pod_recommendation(estimates, policy, annotations, FormatSettings())
    return {
        item.container_name: {name: str(text) for name, text in (item.target or {}).items()}
        for item in recommended.container_recommendations
    }


def _covered_s(usage: Aggregation) -> float:
    if usage.first_sample_s is None or usage.last_sample_s is None:
        return 0.0
    return usage.last_sample_s - usage.first_sample_s


def _unknown(
    pod: Pod, usages: Mapping[str, Aggregation], history_s: float, samples: int, min_history_s: float, min_samples: int
) -> str:
    missing = [container.name for container in pod.spec.containers if container.name not in usages]
    if missing:
        return message("no usage is known of container {missing}", missing=", ".join(missing))
    if samples < min_samples:
        return message("samples of usage: {samples}, needed: {min_samples}", samples=samples, min_samples=min_samples)
    if history_s < min_history_s:
        return message(
            "{history_s:.1f} h of usage, {min_history_s:g} h are needed",
            history_s=history_s / 3600,
            min_history_s=min_history_s / 3600,
        )
    return ""


def _container(
    container: Container, usage: Aggregation | None, proposed: dict[str, str], follow: Mapping[str, bool]
) -> ContainerAdvice:
    requests = {name: str(text) for name, text in container.resources.requests.items()}
    limits = {name: str(text) for name, text in container.resources.limits.items()}
    used: dict[str, str] = {}
    above: dict[str, float] = {}
    if usage is not None and usage.samples:
        used["cpu"] = f"{round(usage.cpu.percentile(0.9) * 1000)}m"
        used["memory"] = str(round(usage.memory.percentile(0.9)))
        if "cpu" in proposed:
            above["cpu"] = share_above(usage.cpu, milli(proposed["cpu"]) / 1000)
        if "memory" in proposed:
            above["memory"] = share_above(usage.memory, float(whole(proposed["memory"])))
    scaled = None
    if proposed and follow[container.name]:
        scaled, _ = proportional_limits(amounts(limits), amounts(requests), amounts(proposed), {})
    return ContainerAdvice(
        name=container.name,
        requests=requests,
        limits=limits,
        used=used,
        proposed=proposed,
        proposed_limits=texts(scaled) if scaled is not None else {},
        above=above,
    )
