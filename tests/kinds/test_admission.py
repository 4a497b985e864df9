"""Our own checks say what a real API server says, without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dovetail.model.kinds.admission import BLOCKING, check, describe, filled
from tests.kinds import kinds_cases as cases
from tests.kinds import kinds_manifests as m

ANSWERS = json.loads((Path(__file__).parents[1] / "data" / "kinds" / "answers.json").read_text())
CASES = dict(cases.cases())
UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation"
)


def expected(obj: Any) -> tuple[int, list[str]]:
    """Code and parts of the message, as our checks would have the server say them."""
    found = check(obj)
    unknown = sorted({problem.text for problem in found if problem.kind == "unknown"})
    if unknown:
        return 400, unknown
    texts = [f"{problem}" if problem.path else f"<nil>: {problem.text}" for problem in found]
    if any(problem.kind in BLOCKING for problem in found):
        texts.append(UNCHECKED)
    replicas = obj.get("spec", {}).get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        texts.append(f".spec.replicas: Invalid value: {replicas}: should be a non-negative integer")
    return (422 if texts else 201), texts


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_answer_of_a_real_server_is_ours(name: str) -> None:
    answer, (code, texts) = ANSWERS["cases"][name], expected(CASES[name])
    assert code == answer["code"]
    if code == 201:
        kind = describe(CASES[name])
        assert kind is not None
        assert filled(CASES[name], kind).get("spec") == answer.get("spec")
        return
    said = answer["message"].partition(" is invalid: " if code == 422 else "strict decoding error: ")[2]
    said = said[1:-1] if said.startswith("[") else said
    for text in texts:
        assert text in said
    if any(echo in said for echo in ("Checked value must be", "accessor error", "(anyOf)")):
        return  # the server says one thing in several ways; we say it once
    assert len(said) == sum(map(len, texts)) + 2 * (len(texts) - 1)


@pytest.mark.parametrize(("name", "before", "after"), list(cases.moves()))
def test_the_recorded_answer_to_a_change_is_ours(name: str, before: Any, after: Any) -> None:
    answer, found = ANSWERS["moves"][name], check(after, before)
    assert [str(problem) for problem in found] == (
        [answer["message"].partition(" is invalid: ")[2]] if answer["code"] == 422 else []
    )


@pytest.mark.parametrize("obj", [m.SEED_PROVISIONER, m.SEED_TEMPLATE, m.SEED_POOL, m.SEED_CLASS])
def test_a_manifest_of_the_seeds_is_accepted(obj: Any) -> None:
    assert check(obj) == []


@given(m.older | m.newest, m.json_values)
def test_no_object_makes_a_check_crash(obj: Any, junk: Any) -> None:
    check(obj)
    check({**obj, "spec": junk})
    check({**obj, "metadata": junk, "status": junk})
