"""A walk-through around the real kube-apiserver, kube-scheduler and kube-controller-manager."""

from __future__ import annotations

import pytest

from tests.e2e import manifests
from tests.e2e.conftest import Outside


@pytest.mark.kubernetes
@pytest.mark.timeout(400)
def test_inflate_gets_its_machine_and_gives_it_back_on_a_real_control_plane(real: Outside) -> None:
    real.apply(manifests.POOL)
    real.apply(manifests.INFLATE)
    real.run("kubectl scale deployment inflate --replicas 5")
    real.run("kubectl rollout status deployment/inflate --timeout=120s")
    assert real.types() == ["m5.large"]
    assert "m5.large" in real.run(
        "aws ec2 describe-instances --query 'Reservations[].Instances[].InstanceType' --output text"
    )
    real.run("kubectl scale deployment inflate --replicas 0")
    real.until(lambda: real.types() == [], seconds=120)
