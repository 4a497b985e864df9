"""What a pod says about other pods: affinity terms and spread constraints, parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.model.pods import Pod, PodAffinityTerm, TopologySpreadConstraint, WeightedPodAffinityTerm
from dovetail.model.selector import LabelSelector, LabelSelectorRequirement

_NO_LABELS: Mapping[str, str] = {}


class AffinityTerm(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Which pods are meant, and what counts as the same place."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None

    def selects(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether a pod of these labels in a namespace of those is meant."""
        if namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector is not None and self.selector.matches(labels)


class WeightedTerm(msgspec.Struct, frozen=True, eq=False, gc=False):
    weight: int
    term: AffinityTerm


class Spread(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One spread constraint. No selector, or an empty one, counts no pods."""

    topology_key: str
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool
    selector: LabelSelector | None

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.selector is not None and self.selector.matches(labels)

    @property
    def counts_nothing(self) -> bool:
        return self.selector is None or self.selector.empty


def affinity_terms(pod: Pod, terms: Sequence[PodAffinityTerm]) -> tuple[AffinityTerm, ...]:
    return tuple(_term(pod, term) for term in terms)


def weighted_terms(pod: Pod, terms: Sequence[WeightedPodAffinityTerm]) -> tuple[WeightedTerm, ...]:
    return tuple(WeightedTerm(term.weight, _term(pod, term.pod_affinity_term)) for term in terms)


def _term(pod: Pod, term: PodAffinityTerm) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    namespaces = frozenset({pod.metadata.namespace}) if own else frozenset(term.namespaces)
    selector = _narrowed(term.label_selector, pod, term.match_label_keys, "In")
    selector = _narrowed(selector, pod, term.mismatch_label_keys, "NotIn")
    return AffinityTerm(term.topology_key, namespaces, term.namespace_selector, selector)


def spreads(pod: Pod, action: str) -> tuple[Spread, ...]:
    """The pod's own constraints of one severity."""
    return tuple(
        _spread(pod, constraint)
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == action
    )


def _spread(pod: Pod, constraint: TopologySpreadConstraint) -> Spread:
    return Spread(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honor_affinity=constraint.node_affinity_policy != "Ignore",
        honor_taints=constraint.node_taints_policy == "Honor",
        selector=_narrowed(constraint.label_selector, pod, constraint.match_label_keys, "In"),
    )


def _narrowed(selector: LabelSelector | None, pod: Pod, keys: Sequence[str], operator: str) -> LabelSelector | None:
    """The selector with the pod's own values of some labels asked for, or asked away."""
    labels = pod.metadata.labels
    more = tuple(
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],)) for key in keys if key in labels
    )
    if selector is None or not more:
        return selector
    expressions = tuple(expression for expression in more if expression not in selector.match_expressions)
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *expressions))


class AffinityIndex(msgspec.Struct, frozen=True):
    """The namespaces that a pod's own terms mean, resolved against the cluster's namespaces."""

    namespaces: Mapping[str, Mapping[str, str]]

    def selects(self, term: AffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        """As kube-scheduler asks of a pod's own terms: selected namespaces join the list.

        A namespace selector that is content with no labels at all means every namespace.
        """
        chosen = term.namespace_selector
        if namespace not in term.namespaces:
            if chosen is None:
                return False
            labels_ = self.namespaces.get(namespace)
            listed = labels_ is not None and chosen.matches(labels_)
            if not listed and not chosen.matches(_NO_LABELS):
                return False
        return term.selector is not None and term.selector.matches(labels)
