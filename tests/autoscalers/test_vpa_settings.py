"""Flags of the three programs: upstream's names and defaults, hints for mistakes, and names for what has no effect."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dovetail.autoscalers.go_flags import FlagError
from dovetail.autoscalers.vpa.settings import (
    TABLES,
    AdmissionSettings,
    RecommenderSettings,
    UpdaterSettings,
    admission_settings,
    recommender_settings,
    updater_settings,
)
from dovetail.autoscalers.vpa.validation import FeatureGates
from dovetail.cli.vpa import manifests, vpa


def test_no_flags_are_the_defaults() -> None:
    assert recommender_settings([], {}) == (RecommenderSettings(), [])
    assert updater_settings([], {}) == (UpdaterSettings(), [])
    assert admission_settings([], {}) == (AdmissionSettings(), [])


def test_every_flag_has_one_name_and_a_readable_default() -> None:
    for table in TABLES.values():
        names = [flag.name for flag in table]
        assert len(names) == len(set(names)) > 20
        for flag in table:
            flag.value(flag.default)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--recommender-interval=30s", "--memory-saver"],
        ["--recommender-interval", "30s", "--memory_saver=true"],
        ["-recommender_interval=30s", "--memory-saver=1"],
    ],
)
def test_flags_are_read_as_go_reads_them(arguments: list[str]) -> None:
    settings, notes = recommender_settings(arguments, {})
    assert (settings.interval_s, settings.memory_saver, notes) == (30.0, True, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recomender-name=x"], "unknown flag: --recomender-name; did you mean --recommender-name?"),
        (["--recommender-interval"], "flag needs an argument: --recommender-interval"),
        (["--recommender-interval=soon"], "--recommender-interval: 'soon' is not a duration"),
        (["--recommender-interval=0s"], "--recommender-interval: 0 has to be more than 0"),
        (["--round-cpu-millicores=x"], "--round-cpu-millicores: 'x' is not a whole number"),
        (["--memory-saver=perhaps"], "--memory-saver: 'perhaps' is neither true nor false"),
        (["--container-recommendation-max-allowed-cpu=lots"], "is not a quantity"),
        (["now"], "'now' is not a flag"),
        (["--feature-gates=InPlaze=true"], "unrecognized feature gate: InPlaze; did you mean InPlace?"),
        (["--feature-gates=InPlace"], "write InPlace=true or InPlace=false"),
        (
            ["--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"],
            "--vpa-object-namespace and --ignored-vpa-object-namespaces exclude each other",
        ),
        (
            ["--prometheus-bearer-token=t", "--prometheus-bearer-token-file=f", "--username=u"],
            "--prometheus-bearer-token, --prometheus-bearer-token-file and --username exclude each other",
        ),
        (["--leader-elect-renew-deadline=20s"], "--leader-elect-lease-duration: "),
        (["--leader-elect-resource-lock=endpoints"], "only leases exist"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(FlagError) as error:
        recommender_settings(arguments, {})
    assert message in str(error.value)


def test_flags_without_effect_are_named() -> None:
    _, notes = recommender_settings(["--min-checkpoints=20", "--logtostderr=false", "--v=4"], {})
    assert [note.split(" ")[0] for note in notes] == ["--min-checkpoints", "--logtostderr"]


def test_external_metrics_by_resource() -> None:
    asked = ["--use-external-metrics", "--external-metrics-cpu-metric=cores", "--container-name-label=container"]
    external = recommender_settings(asked, {})[0].external
    assert external is not None
    assert (external.metrics, external.container_label) == ({"cpu": "cores"}, "container")
    settings, notes = recommender_settings(["--external-metrics-memory-metric=bytes"], {})
    assert settings.external is None
    assert notes == ["--external-metrics-memory-metric has no effect without --use-external-metrics"]


def test_gates_by_name_and_all_together() -> None:
    settings, _ = updater_settings(["--feature-gates=InPlace=true,CPUStartupBoost=false"], {})
    assert settings.common.gates == FeatureGates(in_place=True)
    settings, _ = updater_settings(["--feature-gates=AllAlpha=true"], {})
    assert settings.common.gates == FeatureGates(in_place=True, cpu_startup_boost=True, per_vpa_config=True)
    assert settings.thresholds.per_vpa_config


def test_the_namespace_of_the_pod_is_that_of_the_leases() -> None:
    updater, _ = updater_settings([], {"NAMESPACE": "autoscaling"})
    admission, _ = admission_settings([], {"NAMESPACE": "autoscaling"})
    assert (
        updater.status_lease_namespace == admission.status_lease_namespace == admission.pod_namespace == "autoscaling"
    )


def test_rate_limits_of_zero_or_less_are_none() -> None:
    assert updater_settings(["--eviction-rate-limit=0"], {})[0].rate_limit is None
    assert updater_settings(["--eviction-rate-limit=0.5"], {})[0].rate_limit == 0.5


def test_ciphers_go_by_the_names_of_go() -> None:
    asked = "--tls-ciphers=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    settings, _ = admission_settings([asked], {})
    assert settings.tls_ciphers == "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305"
    with pytest.raises(FlagError, match="no cipher has this name"):
        admission_settings(["--tls-ciphers=TLS_ROT13"], {})


def test_a_webhook_by_address_needs_one() -> None:
    with pytest.raises(FlagError, match="--webhook-address"):
        admission_settings(["--register-by-url"], {})
    arguments = ["--register-by-url", "--webhook-address=https://10.0.0.1", "--webhook-port=8000"]
    assert admission_settings(arguments, {})[0].url == "https://10.0.0.1:8000"


@pytest.mark.parametrize("program", sorted(TABLES))
def test_help_lists_the_flags(program: str) -> None:
    result = CliRunner().invoke(vpa, [program, "--help"])
    assert result.exit_code == 0
    for flag in TABLES[program]:
        assert f"--{flag.name} " in result.output


def test_an_unknown_flag_ends_the_program_with_a_hint() -> None:
    result = CliRunner().invoke(vpa, ["updater", "--min-replica=1"])
    assert result.exit_code == 2
    assert "unknown flag: --min-replica; did you mean --min-replicas?" in result.output


def test_manifests_have_upstreams_names() -> None:
    import yaml

    result = CliRunner().invoke(manifests, ["vpa"])
    objects = list(yaml.safe_load_all(result.output))
    names = {(item["kind"], item["metadata"]["name"]) for item in objects}
    for name in ("vpa-recommender", "vpa-updater", "vpa-admission-controller"):
        assert {("Deployment", name), ("ServiceAccount", name)} <= names
    assert ("Service", "vpa-webhook") in names
    assert ("CustomResourceDefinition", "verticalpodautoscalers.autoscaling.k8s.io") in names
    for binding in (item for item in objects if item["kind"].endswith("Binding")):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in names


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ("team:web", {"team": "web"}),
        ("team:web,tier:1", {"team": "web", "tier": "1"}),
        ("team:web, tier:1", {"team": "web", "tier": "1"}),
        ("team : web,tier : 1", {"team": "web", "tier": "1"}),
        ('"team:web,tier:1"', {"team": "web", "tier": "1"}),
        ("url:a:b", {"url": "a:b"}),
    ],
)
def test_labels_of_the_webhook(text: str, labels: dict[str, str]) -> None:
    """A space or a quote in a label would be refused by the API server, and the webhook never be registered."""
    assert admission_settings([f"--webhook-labels={text}"], {})[0].webhook_labels == labels


@pytest.mark.parametrize("text", ["team,tier", "team:web,:1", "team:web,"])
def test_labels_without_a_key_are_refused(text: str) -> None:
    with pytest.raises(FlagError, match="write key:value"):
        admission_settings([f"--webhook-labels={text}"], {})
