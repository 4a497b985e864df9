"""The labelled corpus: the right first cause, no object that the pod cannot use, and remedies that are tried."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from dovetail.cloud.simulated import catalog_file
from dovetail.model.instance_type import InstanceType
from dovetail.offline.changes import ManifestChange, applied, what_it_takes
from dovetail.offline.evaluation import PlanEvaluation
from dovetail.planner.plan import Exclusion
from tests.explain import generate
from tests.explain.cluster_case import catalogue

#: Causes of the pod alone: the message names the pool that is nearest, and the pod has to be changed.
OF_THE_POD = frozenset({"NO_TYPE_MATCHES", "UNKNOWN_LABEL", "UNTOLERATED_TAINT", "VOLUME_ZONE", "NO_TYPE_FITS"})


@cache
def types() -> tuple[InstanceType, ...]:
    return tuple(catalog_file.parse(json.dumps(catalogue()).encode()))


@cache
def corpus() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, generate.CORPUS.read_text().splitlines()))


@cache
def evaluated() -> tuple[tuple[dict[str, Any], PlanEvaluation], ...]:
    return tuple(
        (case, PlanEvaluation(case["manifests"], types=types(), unavailable=frozenset(map(tuple, case["unavailable"]))))
        for case in corpus()
    )


def test_the_corpus_is_the_generated_one_and_large_enough() -> None:
    assert json.loads(json.dumps(generate.cases())) == list(corpus())
    assert len(corpus()) >= 200
    assert len({case["code"] for case in corpus()}) >= 15


def test_at_least_98_percent_have_the_right_first_cause_and_object() -> None:
    wrong = []
    for case, evaluation in evaluated():
        why = evaluation.refusal(case["pod"])
        found = (why.code, why.object or f"pod/{case['pod']}") if why is not None else ("placed", "")
        if found != (case["code"], case["object"]):
            wrong.append((case["name"], found))
    assert len(wrong) <= 0.02 * len(corpus()), wrong


def test_no_explanation_blames_an_object_that_the_pod_cannot_use() -> None:
    asked = 0
    for case, evaluation in evaluated():
        why = evaluation.refusal(case["pod"])
        assert why is not None
        kind, _, name = why.object.partition("/")
        if kind == "nodepool":
            asked += 1
            assert name in {*case["usable"], "gone"}, (case["name"], why.message)
        elif why.pools:
            assert why.code in OF_THE_POD or kind == "ec2nodeclass", (case["name"], why.message)
    assert asked > 50


def test_at_least_90_percent_of_the_remedies_give_the_pod_a_node() -> None:
    tried, mended = 0, 0
    for case, evaluation in evaluated():
        if not case["remedy"]:
            continue
        tried += 1
        changes = what_it_takes(evaluation, case["pod"])
        after = evaluation.changed(applied(case["manifests"], changes)) if changes else evaluation
        mended += after.placement(case["pod"]) is not None and after.refusal(case["pod"]) is None
    assert tried > 100
    assert mended >= 0.9 * tried


def test_a_change_that_does_not_help_is_not_proposed() -> None:
    """Without a class that is ready no change of the pod helps."""
    case, evaluation = next(each for each in evaluated() if each[0]["name"] == "class_not_ready-0")
    assert what_it_takes(evaluation, case["pod"]) == ()


def test_two_changes_are_found_where_one_is_not_enough() -> None:
    case = next(each for each in corpus() if each["name"] == "taint-0")
    manifests = json.loads(json.dumps(case["manifests"]))
    manifests[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "40"
    changes = what_it_takes(PlanEvaluation(manifests, types=types()), case["pod"])
    assert [change.object for change in changes] == ["pod/default/app", "pod/default/app"]
    after = PlanEvaluation(applied(manifests, changes), types=types())
    assert after.refusal(case["pod"]) is None


def test_the_command_of_a_change_is_a_patch_of_the_object_that_kubectl_takes() -> None:
    case, evaluation = next(each for each in evaluated() if each[0]["name"] == "cpu_limit-0")
    (change,) = what_it_takes(evaluation, case["pod"])
    assert isinstance(change, ManifestChange)
    assert change.command.startswith(f"kubectl patch nodepool {case['usable'][0]} --type merge -p '")
    patch = json.loads(change.command.partition("-p '")[2].rstrip("'"))
    assert patch == change.patch and "cpu" in patch["spec"]["limits"]


def test_what_a_funnel_says_in_words_is_there_as_data() -> None:
    """Changes are proposed from these facts: a message may be reworded or translated."""
    by_name = {case["name"]: (case, evaluation) for case, evaluation in evaluated()}

    def exclusion(name: str) -> Exclusion:
        case, evaluation = by_name[name]
        why = evaluation.refusal(case["pod"])
        assert why is not None
        return next(iter(why.pools.values())).exclusion

    assert exclusion("taint-0").taints
    assert exclusion("cpu_limit-0").limit == "cpu"
    assert exclusion("min_values-0").min_values
    assert exclusion("too_much_cpu-0").resource == "cpu"
    assert exclusion("too_much_cpu-0").available
    assert exclusion("zone_not_allowed-0").forbidding == (("topology.kubernetes.io/zone", "In"),)
    assert exclusion("letters_as_types-0").own_requirements
    assert exclusion("misspelt_value-0").meant
