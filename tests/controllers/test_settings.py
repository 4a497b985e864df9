"""Settings by Karpenter's flags and environment names."""

from __future__ import annotations

import pytest

from dovetail.controllers.settings import BindingMode, SettingsError, read


def test_defaults_are_karpenters() -> None:
    settings = read({}, {})
    assert (settings.batch_idle_duration, settings.batch_max_duration) == (1.0, 10.0)
    assert (settings.metrics_port, settings.health_probe_port) == (8080, 8081)
    assert settings.leader_election_name == "karpenter-leader-election"
    assert settings.gate("ReservedCapacity")
    assert not settings.gate("NodeRepair")
    assert settings.place is BindingMode.BIND


def test_the_environment_is_read_and_a_flag_wins() -> None:
    environment = {"BATCH_MAX_DURATION": "1m30s", "PREFERENCE_POLICY": "Ignore", "DISABLE_LEADER_ELECTION": "true"}
    settings = read({"batch_max_duration": "20s"}, environment)
    assert settings.batch_max_duration == 20.0
    assert settings.preference_policy == "Ignore"
    assert settings.disable_leader_election


def test_feature_gates_change_what_they_name_and_unknown_ones_are_ignored() -> None:
    settings = read({"feature_gates": "NodeRepair=true,Nonsense=true"}, {})
    assert settings.gate("NodeRepair")
    assert settings.gate("ReservedCapacity")
    assert not settings.gate("Nonsense")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("batch_idle_duration", "soon"),
        ("preference_policy", "Maybe"),
        ("place", "somewhere"),
        ("metrics_port", "eighty"),
        ("isolated_vpc", "perhaps"),
        ("feature_gates", "NodeRepair"),
    ],
)
def test_a_bad_value_names_its_flag(field: str, text: str) -> None:
    with pytest.raises(SettingsError, match="--" + field.replace("_", "-")):
        read({field: text}, {})


def test_an_idle_window_longer_than_the_longest_is_refused() -> None:
    with pytest.raises(SettingsError, match="batch-idle-duration"):
        read({"batch_idle_duration": "11s"}, {})


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("batch_idle_duration", "-1s", "--batch-idle-duration: -1 is not at least 0"),
        ("metrics_port", "99999", "--metrics-port: 99999 is not from 0 to 65535"),
        ("kube_client_qps", "0", "--kube-client-qps: 0 is not at least 1"),
        ("reserved_enis", "-1", "--reserved-enis: -1 is not at least 0"),
        ("kube_client_burst", "many", "--kube-client-burst: 'many' is not a whole number"),
    ],
)
def test_a_number_out_of_range_is_refused_with_its_range(field: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({field: text}, {})
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ['{"team": "shop", "env": "prod"}', "team=shop, env=prod", ",env=prod,team=shop"])
def test_tags_are_a_json_object_or_pairs(text: str) -> None:
    assert read({}, {"AWS_TAGS": text}).aws_tags == {"team": "shop", "env": "prod"}


@pytest.mark.parametrize(
    "text", ["team", '{"team": 1}', "{", "karpenter.sh/nodepool=x", "kubernetes.io/cluster/demo=owned", "aws:x=1", "=1"]
)
def test_tags_that_cannot_be_written_name_the_flag(text: str) -> None:
    with pytest.raises(SettingsError, match="--aws-tags"):
        read({"aws_tags": text}, {})


def test_the_role_to_assume_and_the_share_of_ec2_are_read() -> None:
    role = "arn:aws:iam::1:role/r"
    found = read({}, {"ASSUME_ROLE_ARN": role, "ASSUME_ROLE_DURATION": "30m", "EC2_SHARE": "0"})
    assert (found.assume_role_arn, found.assume_role_duration, found.ec2_share) == (role, 1800.0, 0.0)
    for name, value in (("ec2_share", "1.5"), ("assume_role_duration", "1m")):
        with pytest.raises(SettingsError, match="--" + name.replace("_", "-")):
            read({name: value}, {})
