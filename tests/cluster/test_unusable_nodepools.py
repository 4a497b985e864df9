"""Why a NodePool launches nothing, in the words of what the operator wrote."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.cluster.unusable_nodepools import cause
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import view


def pool(**metadata: Any) -> NodePool:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}}
    return view({"metadata": {"name": "default", **metadata}, "spec": spec}, NodePool)


@pytest.mark.parametrize(
    ("owners", "kind", "field"),
    [
        ([], "EC2NodeClass", "spec.template.spec.nodeClassRef.name"),
        ([{"kind": "Provisioner", "name": "default"}], "AWSNodeTemplate", "spec.providerRef.name of the Provisioner"),
    ],
)
def test_a_missing_class_is_named_by_the_kind_that_was_left_out(
    owners: list[dict[str, str]], kind: str, field: str
) -> None:
    found = cause(pool(ownerReferences=owners), None, class_required=True, reconciled=True, classes=["defualt"])
    assert found is not None
    assert found.why == f"is not ready: its {kind} default does not exist; did you mean defualt?"
    assert found.remedy.endswith(field)
    assert found.object == f"{kind.lower()}/default"
