"""The recommender's model: pods, their containers' usage, and the VPAs that aggregate it.

Containers of the same name in pods with the same namespace and labels share an aggregation. A VPA uses every
aggregation whose labels its selector matches, and merges them by container name with what checkpoints hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from dovetail.autoscalers.vpa.api import Pod, PodRecommendation, VerticalPodAutoscaler, container_policy
from dovetail.autoscalers.vpa.estimators import EstimatorSettings, pod_estimates
from dovetail.autoscalers.vpa.recommendation import FormatSettings, pod_recommendation
from dovetail.autoscalers.vpa.usage import Aggregation, AggregationSettings, ContainerUsage
from dovetail.model.meta import Condition
from dovetail.model.selector import LabelQuery

RECOMMENDATION_PROVIDED = "RecommendationProvided"
NO_PODS_MATCHED = "NoPodsMatched"
CONFIG_UNSUPPORTED = "ConfigUnsupported"
CONFIG_DEPRECATED = "ConfigDeprecated"
FETCHING_HISTORY = "FetchingHistory"
_NO_PODS_TEXT = "No pods match this VPA object"

Labels = tuple[tuple[str, str], ...]


class AggregationKey(msgspec.Struct, frozen=True):
    namespace: str
    container: str
    labels: Labels


class HistorySample(msgspec.Struct, frozen=True):
    """Milli-cores of cpu or bytes of memory at a time."""

    time_s: float
    resource: str
    amount: int


class PodHistory(msgspec.Struct, frozen=True):
    """What was recorded of a pod; samples are by container and in order of time."""

    namespace: str
    name: str
    labels: dict[str, str]
    samples: dict[str, list[HistorySample]]


class PodUsage:
    """A pod and the usage of its containers."""

    __slots__ = ("containers", "init_containers", "labels", "name", "namespace", "phase")

    def __init__(self, namespace: str, name: str, labels: Labels) -> None:
        self.namespace = namespace
        self.name = name
        self.labels = labels
        self.phase = ""
        self.containers: dict[str, ContainerUsage] = {}
        self.init_containers: frozenset[str] = frozenset()


class VpaState:
    """A VPA, what it aggregates, and its conditions by type."""

    def __init__(self, vpa: VerticalPodAutoscaler, selector: LabelQuery | None, selector_text: str) -> None:
        self.vpa = vpa
        #: None selects no pods: the target is missing or not supported.
        self.selector = selector
        self.selector_text = selector_text
        self.aggregations: dict[AggregationKey, Aggregation] = {}
        #: Aggregations from checkpoints or from history, by container.
        self.initial: dict[str, Aggregation] = {}
        self.conditions: dict[str, Condition] = {}
        self.recommendation: PodRecommendation | None = None
        self.checkpoint_written_s = float("-inf")
        self.missing_since_s: float | None = None

    @property
    def required_label(self) -> tuple[str, str] | None:
        """A label that every selected pod has, if the selector names one."""
        for requirement in self.selector.requirements if self.selector is not None else ():
            if requirement.operator == "In" and len(requirement.values) == 1:
                return requirement.key, requirement.values[0]
        return None

    def matches(self, namespace: str, labels: Labels) -> bool:
        return (
            self.selector is not None
            and self.vpa.metadata.namespace == namespace
            and self.selector.matches(dict(labels))
        )

    def use(self, key: AggregationKey, aggregation: Aggregation) -> None:
        self.aggregations[key] = aggregation
        aggregation.under_vpa = True
        aggregation.update_mode = _written_mode(self.vpa)
        aggregation.take_policy(container_policy(key.container, self.vpa.spec.resource_policy))

    def take(self, vpa: VerticalPodAutoscaler) -> None:
        """Follow a new state of the object; its old recommendation counts only if it says that it has one."""
        if vpa.spec.resource_policy != self.vpa.spec.resource_policy:
            for key, aggregation in self.aggregations.items():
                aggregation.take_policy(container_policy(key.container, vpa.spec.resource_policy))
        if (mode := _written_mode(vpa)) != _written_mode(self.vpa):
            for aggregation in self.aggregations.values():
                aggregation.update_mode = mode
        self.vpa = vpa
        self.conditions = {item.type: item for item in vpa.status.conditions}
        provided = self.conditions.get(RECOMMENDATION_PROVIDED)
        trusted = provided is not None and provided.status == "True"
        self.recommendation = vpa.status.recommendation if trusted else None

    def merged(self, settings: AggregationSettings, now_s: float) -> dict[str, Aggregation]:
        """All aggregations of each container name as one."""
        merged: dict[str, Aggregation] = {}
        named = [(key.container, aggregation) for key, aggregation in self.aggregations.items()]
        for container, aggregation in (*named, *self.initial.items()):
            whole = merged.get(container)
            if whole is None:
                whole = merged[container] = Aggregation(settings, now_s)
            whole.merge(aggregation)
        return merged

    def set_condition(self, kind: str, status: bool, reason: str, message: str, now: datetime) -> None:
        """The time of transition changes with the status only."""
        text = "True" if status else "False"
        old = self.conditions.get(kind)
        changed = now if old is None or old.status != text else old.last_transition_time
        self.conditions[kind] = Condition(
            type=kind, status=text, reason=reason, message=message, last_transition_time=changed
        )

    def drop_condition(self, kind: str) -> None:
        self.conditions.pop(kind, None)

    def update_conditions(self, pods_matched: bool, now: datetime) -> None:
        reason = message = ""
        if pods_matched:
            self.drop_condition(NO_PODS_MATCHED)
        else:
            reason, message = NO_PODS_MATCHED, _NO_PODS_TEXT
            self.set_condition(NO_PODS_MATCHED, True, reason, message, now)
        if self.recommendation is not None and self.recommendation.container_recommendations:
            self.set_condition(RECOMMENDATION_PROVIDED, True, "", "", now)
        else:
            self.set_condition(RECOMMENDATION_PROVIDED, False, reason, message, now)

    def status(self) -> dict[str, object]:
        """The status to write, with conditions sorted by type."""
        written: dict[str, object] = {
            "conditions": [msgspec.to_builtins(self.conditions[kind]) for kind in sorted(self.conditions)],
            "observedGeneration": self.vpa.metadata.generation,
        }
        if self.recommendation is not None:
            written["recommendation"] = msgspec.to_builtins(self.recommendation)
        return written


def _written_mode(vpa: VerticalPodAutoscaler) -> str:
    """The mode as the object has it; empty where it has none."""
    policy = vpa.spec.update_policy
    return (policy.update_mode if policy is not None else None) or ""


class Model:
    """All that a recommender knows. Times are seconds since 1970."""

    def __init__(
        self,
        aggregation: AggregationSettings | None = None,
        estimators: EstimatorSettings | None = None,
        formats: FormatSettings | None = None,
    ) -> None:
        self.settings = aggregation or AggregationSettings()
        self.estimators = estimators or EstimatorSettings()
        self.formats = formats or FormatSettings()
        self.pods: dict[str, PodUsage] = {}
        self.vpas: dict[str, VpaState] = {}
        self.aggregations: dict[AggregationKey, Aggregation] = {}
        #: VPAs by namespace and a label that their pods surely have; None for selectors without such a label.
        self._by_label: dict[tuple[str, tuple[str, str] | None], dict[str, VpaState]] = {}

    # Pods

    def put_pod(self, pod: Pod, now_s: float, *, only_under_vpa: bool = False) -> None:
        """Add a pod or follow its change. `only_under_vpa` passes over pods that no VPA selects."""
        metadata = pod.metadata
        labels = tuple(sorted(metadata.labels.items()))
        key = metadata.key
        held = self.pods.get(key)
        if held is None or held.labels != labels:
            if only_under_vpa and not any(self._selecting(metadata.namespace, labels)):
                return
            held = self._labelled(metadata.namespace, metadata.name, labels, now_s)
        held.phase = pod.status.phase
        held.init_containers = frozenset(container.name for container in pod.spec.init_containers)
        for container in pod.spec.containers:
            if container.name not in held.containers:
                aggregation = self._aggregation(held, container.name, now_s)
                held.containers[container.name] = ContainerUsage(aggregation)

    def _labelled(self, namespace: str, name: str, labels: Labels, now_s: float) -> PodUsage:
        """A pod with its labels. Other labels than before lead to other aggregations; the last samples stay known."""
        pod = self.pods.get(f"{namespace}/{name}")
        if pod is None:
            pod = self.pods[f"{namespace}/{name}"] = PodUsage(namespace, name, labels)
        elif pod.labels != labels:
            pod.labels = labels
            for container, usage in pod.containers.items():
                usage.aggregation = self._aggregation(pod, container, now_s)
        return pod

    def put_history(self, history: PodHistory, now_s: float) -> None:
        """Add what was recorded of a pod before this recommender started."""
        labels = tuple(sorted(history.labels.items()))
        pod = self._labelled(history.namespace, history.name, labels, now_s)
        for container, samples in history.samples.items():
            usage = pod.containers.get(container)
            if usage is None:
                usage = pod.containers[container] = ContainerUsage(self._aggregation(pod, container, now_s))
            for sample in samples:
                if sample.resource == "cpu":
                    usage.add_cpu(sample.amount, sample.time_s)
                else:
                    usage.add_memory(sample.amount, sample.time_s)

    def vpa_of(self, pod: PodUsage) -> VpaState | None:
        """A VPA that selects a pod."""
        return next(iter(self._selecting(pod.namespace, pod.labels)), None)

    def remove_pods_except(self, live: Iterable[str]) -> list[str]:
        """Forget the pods that are gone; what they used stays in their aggregations."""
        gone = self.pods.keys() - set(live)
        for key in gone:
            del self.pods[key]
        return sorted(gone)

    def usage(self, pod: str, name: str) -> ContainerUsage | None:
        """The usage of a container as it is; its aggregation may have been collected."""
        held = self.pods.get(pod)
        return held.containers.get(name) if held is not None else None

    def container(self, pod: str, name: str, now_s: float) -> ContainerUsage | None:
        """The usage of a container, with the aggregation that counts now: collected ones are made anew."""
        held = self.pods.get(pod)
        usage = held.containers.get(name) if held is not None else None
        if held is None or usage is None:
            return None
        usage.aggregation = self._aggregation(held, name, now_s)
        return usage

    def _aggregation(self, pod: PodUsage, container: str, now_s: float) -> Aggregation:
        key = AggregationKey(pod.namespace, container, pod.labels)
        aggregation = self.aggregations.get(key)
        if aggregation is None:
            aggregation = self.aggregations[key] = Aggregation(self.settings, now_s)
            for state in self._selecting(pod.namespace, pod.labels):
                state.use(key, aggregation)
        return aggregation

    # VPAs

    def put_vpa(self, vpa: VerticalPodAutoscaler, selector: LabelQuery | None, selector_text: str) -> VpaState:
        """Add a VPA or follow its change. Another selector makes it a new one, without its old history."""
        key = vpa.metadata.key
        state = self.vpas.get(key)
        if state is None or state.selector_text != selector_text:
            if state is not None:
                self.remove_vpa(key)
            state = self.vpas[key] = VpaState(vpa, selector, selector_text)
            self._by_label.setdefault((vpa.metadata.namespace, state.required_label), {})[key] = state
            for name, aggregation in self.aggregations.items():
                if state.matches(name.namespace, name.labels):
                    state.use(name, aggregation)
        state.take(vpa)
        return state

    def remove_vpa(self, key: str) -> None:
        state = self.vpas.pop(key, None)
        if state is None:
            return
        self._by_label[state.vpa.metadata.namespace, state.required_label].pop(key, None)
        for aggregation in state.aggregations.values():
            aggregation.leave_vpa()

    def _selecting(self, namespace: str, labels: Labels) -> Iterable[VpaState]:
        for label in (None, *labels):
            for state in self._by_label.get((namespace, label), {}).values():
                if state.matches(namespace, labels):
                    yield state

    def pod_counts(self) -> dict[str, int]:
        """How many known pods each VPA selects."""
        counts = dict.fromkeys(self.vpas, 0)
        seen: dict[tuple[str, Labels], list[str]] = {}
        for pod in self.pods.values():
            alike = (pod.namespace, pod.labels)
            if alike not in seen:
                seen[alike] = [state.vpa.metadata.key for state in self._selecting(pod.namespace, pod.labels)]
            for key in seen[alike]:
                counts[key] += 1
        return counts

    def pods_of(self, state: VpaState) -> list[PodUsage]:
        """The known pods that a VPA selects."""
        return [pod for pod in self.pods.values() if state.matches(pod.namespace, pod.labels)]

    # Decisions

    def recommend(self, state: VpaState, now_s: float) -> PodRecommendation:
        """What a VPA recommends now."""
        policy = state.vpa.spec.resource_policy
        merged = state.merged(self.settings, now_s)
        usages: dict[str, Aggregation] = {}
        controlled: dict[str, tuple[str, ...]] = {}
        for container, usage in merged.items():
            usage.take_policy(container_policy(container, policy))
            if usage.mode != "Off":
                usages[container] = usage
                controlled[container] = usage.controlled_resources or ()
        estimates = pod_estimates(usages, self.estimators, controlled)
        return pod_recommendation(estimates, policy, state.vpa.metadata.annotations, self.formats)

    def checkpointed(self, state: VpaState, now_s: float) -> dict[str, Aggregation]:
        """What to save of a VPA: without the memory peaks of unfinished intervals, which would count twice."""
        merged = state.merged(self.settings, now_s)
        for usage, container in self._usages_of(state):
            if container in merged and usage.window_end_s is not None and now_s < usage.window_end_s:
                merged[container].subtract_memory_peak(usage.peak, usage.window_end_s)
        return merged

    def _usages_of(self, state: VpaState) -> Iterable[tuple[ContainerUsage, str]]:
        index = self._pods_by_labels()
        for key in state.aggregations:
            for pod in index.get((key.namespace, key.labels), ()):
                usage = pod.containers.get(key.container)
                if usage is not None:
                    yield usage, key.container

    def _pods_by_labels(self) -> Mapping[tuple[str, Labels], list[PodUsage]]:
        if self._label_index is None:
            index: dict[tuple[str, Labels], list[PodUsage]] = {}
            for pod in self.pods.values():
                index.setdefault((pod.namespace, pod.labels), []).append(pod)
            self._label_index = index
        return self._label_index

    _label_index: Mapping[tuple[str, Labels], list[PodUsage]] | None = None

    def begin_checkpoints(self) -> None:
        """Call before saving a round of checkpoints: pods are sorted by labels once for all VPAs."""
        self._label_index = None

    def collect_garbage(self, now_s: float, controlled: set[str]) -> list[AggregationKey]:
        """Forget aggregations that are empty and fed by no pod, and those that are too old.

        `controlled` are the finished pods whose controller still exists: they keep their aggregations.
        """
        contributing = {
            AggregationKey(pod.namespace, container, pod.labels)
            for key, pod in self.pods.items()
            if pod.phase not in ("Succeeded", "Failed") or key in controlled
            for container in pod.containers
        }
        gone = [
            key
            for key, aggregation in self.aggregations.items()
            if (key not in contributing and aggregation.is_empty) or aggregation.is_expired(now_s)
        ]
        for key in gone:
            self.aggregations.pop(key).leave_vpa()
            for state in self._selecting(key.namespace, key.labels):
                state.aggregations.pop(key, None)
        return gone
