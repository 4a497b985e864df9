"""The walk-throughs around the real kube-apiserver, kube-scheduler and kube-controller-manager, in real time.

They concern different pools and pods, so they are walked side by side: the whole takes as long as the longest.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e import test_walkthroughs as walks
from tests.e2e.conftest import Outside

WALKS = (
    walks.test_inflate_gets_one_node_then_two_and_ends_on_the_cheapest,
    walks.test_a_provisioner_of_the_first_generation_buys_for_the_tolerating_pod_alone,
    walks.test_a_pod_that_wants_a_branch_interface_gets_a_type_that_has_them,
    walks.test_a_missing_role_mapping_is_named_as_the_cause_and_mapping_it_helps,
    walks.test_an_unschedulable_pod_gets_the_reason_and_the_remedy,
    walks.test_the_account_answers_the_questions_an_installer_asks,
)


@pytest.mark.kubernetes
@pytest.mark.timeout(900)
def test_every_walk_through_ends_as_on_the_lab_on_a_real_control_plane(real: Outside) -> None:
    with ThreadPoolExecutor(len(WALKS)) as threads:
        ways = [threads.submit(walk, real) for walk in WALKS]
    problems = [f"{walk.__name__}: {way.exception()}" for walk, way in zip(WALKS, ways, strict=True) if way.exception()]
    assert not problems, "\n".join(problems)
    # all of it under the roles of the chart, with RBAC on: they sufficed, and they are not an administrator's
    account = "--as=system:serviceaccount:karpenter:karpenter"
    assert real.run(f"kubectl auth can-i create nodeclaims.karpenter.sh {account}").strip() == "yes"
    for refused in ("get secrets -A", "create deployments", "delete namespaces"):
        assert "no" in real.run(f"kubectl auth can-i {refused} {account}", check=False).splitlines()
    real.run("kubectl scale deployment inflate --replicas 0")
    real.until(lambda: real.types() == [])
