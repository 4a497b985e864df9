"""Files rewritten in another generation keep what people wrote in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings

from dovetail.cli.convert import convert
from dovetail.model.kinds.admission import check
from dovetail.model.kinds.convert import to_v1
from dovetail.model.kinds.rewrite import rewrite
from tests.kinds import kinds_manifests as m

SEEDS = sorted((Path(__file__).parents[1] / "data" / "kinds" / "seeds").glob("*.yaml"))


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem)
def test_a_seed_in_v1_is_what_the_server_accepts(seed: Path) -> None:
    done = rewrite(seed.read_text(), "v1")
    for obj in yaml.safe_load_all(done.text):
        assert obj["apiVersion"].endswith("/v1")
        problems = [str(problem) for problem in check(obj)]
        allowed = ("['role', 'instanceProfile']", "requirements[2].requirements: unknown")
        assert [text for text in problems if not any(each in text for each in allowed)] == []


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem)
def test_no_comment_of_a_seed_beside_a_field_that_lives_on_is_lost(seed: Path) -> None:
    text = seed.read_text()
    before = {line.partition("#")[2].strip() for line in text.splitlines() if "#" in line and "#!" not in line}
    after = rewrite(text, "v1").text
    gone = {"optional, resolves a default ami and userdata"} if seed.stem == "template-encrypted" else set()
    assert {comment for comment in before if comment not in after} <= gone


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem)
def test_a_file_in_its_own_generation_is_not_touched(seed: Path) -> None:
    once = rewrite(seed.read_text(), "v1").text
    again = rewrite(once, "v1")
    assert (again.text, again.changed) == (once, 0)


@settings(max_examples=60)
@given(m.older)
def test_a_rewritten_object_says_what_its_conversion_says(obj: Any) -> None:
    """But for the annotations that are for nodes."""
    [found] = list(yaml.safe_load_all(rewrite(yaml.safe_dump(obj, sort_keys=False), "v1").text))[:1]
    wanted = to_v1(obj)
    template = (wanted.get("spec") or {}).get("template") or {}
    assert found["kind"] == wanted["kind"]
    if obj["kind"] == "NodePool" and "spec" in obj:
        assert found["spec"] == wanted["spec"]
    if obj["kind"] == "Provisioner":
        assert found["spec"]["template"]["spec"] == template["spec"]
        assert found["spec"]["disruption"] == wanted["spec"]["disruption"]


def test_kubelet_settings_move_to_the_class_in_the_same_file() -> None:
    provisioner = {
        **m.SEED_PROVISIONER,
        "spec": {**m.SEED_PROVISIONER["spec"], "kubeletConfiguration": {"maxPods": 20}},
    }
    pool, node_class = yaml.safe_load_all(
        rewrite(yaml.safe_dump_all([provisioner, m.SEED_TEMPLATE], sort_keys=False), "v1").text
    )
    assert node_class["spec"]["kubelet"] == {"maxPods": 20}
    assert "annotations" not in pool["metadata"]


def test_an_inline_provider_becomes_a_second_document() -> None:
    text = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: old}
spec:
  provider: {subnetSelector: {a: b}, securityGroupSelector: {a: b}, instanceProfile: x}
"""
    pool, node_class = yaml.safe_load_all(rewrite(text, "v1").text)
    assert (pool["kind"], node_class["kind"], node_class["metadata"]["name"]) == ("NodePool", "EC2NodeClass", "old")


def test_other_documents_pass_through_to_the_byte() -> None:
    text = "# mine\napiVersion: v1\nkind:   ConfigMap\ndata: {a:   b}\n---\n" + SEEDS[1].read_text()
    assert rewrite(text, "v1").text.startswith("# mine\napiVersion: v1\nkind:   ConfigMap\ndata: {a:   b}\n---\n")


def test_what_an_older_generation_cannot_say_is_noted() -> None:
    text = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: a}
spec:
  template:
    spec:
      terminationGracePeriod: 1h  # at most
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}
      requirements: []
"""
    done = rewrite(text, "v1beta1")
    assert "apiVersion: karpenter.sh/v1beta1" in done.text
    assert "terminationGracePeriod" not in done.text
    assert [each.note.path for each in done.remarks if each.note.meaning] == [
        "spec.template.spec.terminationGracePeriod"
    ]


def test_the_command_writes_files_in_place_and_notes_beside(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(SEEDS[1].read_text())
    result = CliRunner().invoke(convert, ["-i", "-f", str(file), "--to", "v1"])
    assert result.exit_code == 0
    assert "meaning: expiry is forceful in v1" in result.stderr
    assert "expireAfter: 720h # 30 * 24h = 720h" in file.read_text()
    assert CliRunner().invoke(convert, ["-f", "-"], input="a: [").exit_code == 2
    assert CliRunner().invoke(convert, []).exit_code == 2
