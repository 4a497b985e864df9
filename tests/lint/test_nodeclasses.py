"""Node classes that the API server takes and that do not do what they say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dovetail.model.lint.linter import lint
from dovetail.model.lint.source import SourceFile

CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: ALIAS@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""


def found(alias: str, more: str) -> list[tuple[str, str, str, str]]:
    text = CLASS.replace("ALIAS", alias) + more
    findings = lint([SourceFile("f.yaml", text)], datetime(2026, 3, 4, tzinfo=UTC))
    return [(each.code, each.path, each.message, each.hint) for each in findings if each.code != "DV304"]


def test_disks_that_pods_do_not_write_to_are_reported() -> None:
    """The system's disk of Bottlerocket is made large, and pods still run out of room on the other."""
    disk = "  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 500Gi}}]\n"
    assert found("al2023", disk) == []
    assert found("bottlerocket", disk) == [
        (
            "DV208",
            "spec.blockDeviceMappings",
            "none of these disks is the one that pods of Bottlerocket write to, /dev/xvdb",
            "add one with deviceName: /dev/xvdb, or mark yours rootVolume: true",
        )
    ]
    assert found("bottlerocket", disk.replace("500Gi}", "500Gi}, rootVolume: true")) == []


@pytest.mark.parametrize(
    ("alias", "kubelet", "code"),
    [
        ("bottlerocket", "{podsPerCore: 10}", "DV208"),
        ("al2023", "{podsPerCore: 10}", None),
        ("bottlerocket", "{clusterDNS: [10.0.0.1, 10.0.0.2]}", "DV208"),
        ("al2023", "{clusterDNS: [10.0.0.1, 10.0.0.2]}", None),
        ("al2023", "{evictionSoft: {pid.available: 5%}, evictionSoftGracePeriod: {pid.available: soon}}", "DV107"),
        ("al2023", "{evictionSoft: {pid.available: 5%}, evictionSoftGracePeriod: {pid.available: 90s}}", None),
    ],
)
def test_kubelet_settings_that_nothing_heeds_or_can_read_are_reported(
    alias: str, kubelet: str, code: str | None
) -> None:
    assert [each[0] for each in found(alias, f"  kubelet: {kubelet}\n")] == ([code] if code else [])


def test_an_alias_that_does_not_exist_is_reported_once() -> None:
    assert [each[0] for each in found("debian", "  kubelet: {podsPerCore: 10}\n")] == ["DV106"]
