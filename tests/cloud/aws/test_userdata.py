"""User data says the same to every reader: what we render is what an instance of the family understands."""

from __future__ import annotations

import base64
import email
import tomllib

import msgspec
import pytest

from dovetail.cloud.aws.userdata import BadUserData, Boot, render
from dovetail.cloud.aws.userdata.boot import UNREGISTERED
from dovetail.lab.aws.user_data import read

BOOT = Boot(
    cluster_name="demo",
    endpoint="https://api.example",
    ca_bundle="Y2E=",
    service_cidr="172.20.0.0/16",
    cluster_dns="172.20.0.10",
    max_pods=29,
    labels={
        "team": "shop",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/role": "web",
        "karpenter.sh/nodepool": "default",
    },
    taints=({"key": "dedicated", "value": "shop", "effect": "NoSchedule"},),
)
FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Windows2022")


def text(family: str, boot: Boot) -> str:
    return base64.b64decode(render(family, boot)).decode()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_instance_joins_the_named_cluster_under_our_taint(family: str) -> None:
    intent = read(render(family, BOOT))
    assert intent is not None
    assert (intent.cluster, intent.endpoint) == ("demo", "https://api.example")
    assert {(t["key"], t["effect"]) for t in intent.taints} == {
        ("dedicated", "NoSchedule"),
        (UNREGISTERED["key"], UNREGISTERED["effect"]),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_a_kubelet_may_not_set_are_left_to_registration(family: str) -> None:
    intent = read(render(family, BOOT))
    assert intent is not None
    assert dict(intent.labels) == {"team": "shop", "node.kubernetes.io/role": "web", "karpenter.sh/nodepool": "default"}


@pytest.mark.parametrize("family", ["AL2", "AL2023"])
def test_the_users_script_runs_before_ours(family: str) -> None:
    made = text(family, Boot(cluster_name="demo", endpoint="e", ca_bundle="c", custom="#!/bin/bash\necho mine\n"))
    ours = "bootstrap.sh" if family == "AL2" else "node.eks.aws/v1alpha1"
    assert 0 < made.index("echo mine") < made.index(ours)


def test_a_users_archive_keeps_its_parts_and_their_kinds() -> None:
    archive = (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n--B\nContent-Type: text/cloud-config\n\n'
        "runcmd: [ls]\n\n--B\nContent-Type: application/node.eks.aws\n\nkind: NodeConfig\nspec:\n"
        "  kubelet:\n    config:\n      maxPods: 7\n\n--B--\n"
    )
    made = text("AL2023", Boot(cluster_name="demo", endpoint="e", ca_bundle="c", max_pods=29, custom=archive))
    assert "text/cloud-config" in made and "runcmd: [ls]" in made
    intent = read(made)
    assert intent is not None and intent.max_pods == 29


def test_a_users_node_config_is_a_part_of_its_own() -> None:
    own = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  instance: {}\n"
    made = text("AL2023", Boot(cluster_name="demo", endpoint="e", ca_bundle="c", custom=own))
    assert made.count("Content-Type: application/node.eks.aws") == 2


def test_bottlerocket_keeps_settings_it_does_not_know() -> None:
    own = '[settings.motd]\ntext = "hi"\n[settings.kubernetes.node-labels]\n"a.b/c" = "d"\n'
    made = text("Bottlerocket", Boot(cluster_name="demo", endpoint="e", ca_bundle="c", custom=own))
    intent = read(made)
    assert intent is not None and intent.labels["a.b/c"] == "d"
    assert 'text = "hi"' in made


def test_settings_that_are_not_toml_are_refused_with_the_field() -> None:
    with pytest.raises(BadUserData, match=r"spec\.userData"):
        render("Bottlerocket", Boot(cluster_name="demo", endpoint="e", ca_bundle="c", custom="echo hello"))


def test_custom_user_data_is_passed_on_untouched() -> None:
    assert text("Custom", Boot(cluster_name="d", endpoint="e", ca_bundle="c", custom="as it is\n")) == "as it is\n"
    assert read(render("Custom", Boot(cluster_name="d", endpoint="e", ca_bundle="c", custom="as it is"))) is None


def test_kubelet_settings_reach_every_family() -> None:
    kubelet = {"evictionHard": {"memory.available": "5%"}, "kubeReserved": {"cpu": "100m"}, "clusterDNS": ["10.0.0.1"]}
    boot = Boot(cluster_name="demo", endpoint="e", ca_bundle="c", kubelet=kubelet)
    assert '--eviction-hard="memory.available<5%"' in text("AL2", boot)
    assert "memory.available: 5%" in text("AL2023", boot)
    assert '"memory.available" = "5%"' in text("Bottlerocket", boot)
    assert "10.0.0.1" in text("AL2", boot) and "10.0.0.1" in text("Bottlerocket", boot)


def test_bottlerocket_takes_the_pools_taints_alone() -> None:
    """A taint in the user's settings that the pool does not know would keep planned pods off the instance."""
    custom = '[settings.kubernetes.node-taints]\nother = ["x:NoSchedule"]\ndedicated = ["y:NoSchedule"]\n'
    found = tomllib.loads(text("Bottlerocket", msgspec.structs.replace(BOOT, custom=custom)))
    assert found["settings"]["kubernetes"]["node-taints"] == {
        "dedicated": ["shop:NoSchedule"],
        "karpenter.sh/unregistered": [":NoExecute"],
    }


@pytest.mark.parametrize(
    ("version", "reported"),
    [("latest", False), ("v1.46.0", False), ("1.50.2", False), ("2.0.0", False), ("v1.45.9", True), ("", True)],
)
def test_an_older_bottlerocket_is_reported_what_to_put_on_its_own_disks(version: str, reported: bool) -> None:
    boot = msgspec.structs.replace(BOOT, raid0=True, image_version=version)
    commands = tomllib.loads(text("Bottlerocket", boot))["settings"]["bootstrap-commands"]
    [_, bind] = commands["000-mount-instance-storage"]["commands"]
    assert ("--dirs" in bind) is reported


MAIL = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="outer"

--outer
Content-Type: text/x-shellscript
Content-Transfer-Encoding: base64

IyEvYmluL2Jhc2gKZWNobyBncsO8ZQo=
--outer
Content-Type: multipart/mixed; boundary="inner"

--inner
Content-Type: text/x-shellscript
Content-Transfer-Encoding: quoted-printable

echo a=3Db
--inner--
--outer
Content-Type: application/octet-stream
Content-Transfer-Encoding: base64

//79/A==
--outer--
"""


@pytest.mark.parametrize("family", ["AL2", "AL2023"])
def test_encoded_and_nested_mime_parts_reach_cloud_init_as_they_were_meant(family: str) -> None:
    message = email.message_from_string(text(family, msgspec.structs.replace(BOOT, custom=MAIL)))
    first, second, third, *ours = (part for part in message.walk() if not part.is_multipart())
    assert "echo grüe" in str(first.get_payload()) and "Content-Transfer-Encoding" not in first
    assert str(second.get_payload()).strip() == "echo a=b"
    assert third.get_payload(decode=True) == b"\xff\xfe\xfd\xfc", "no text: it stays encoded, and says so"
    assert len(ours) == 1


def test_a_script_that_contains_our_boundary_stays_one_part() -> None:
    script = "#!/bin/bash\ncat <<EOF\n--//\nContent-Type: text/plain\n--//--\nEOF"
    message = email.message_from_string(text("AL2023", msgspec.structs.replace(BOOT, custom=script)))
    parts = [part for part in message.walk() if not part.is_multipart()]
    assert len(parts) == 2 and str(parts[0].get_payload()).strip() == script
