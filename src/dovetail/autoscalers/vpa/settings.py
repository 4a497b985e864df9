"""The settings of the three programs: their flags, with upstream's names and defaults, as typed values."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.autoscalers.go_flags import FlagError, listen_address
from dovetail.autoscalers.vpa.disruption import DisruptionSettings
from dovetail.autoscalers.vpa.estimators import EstimatorSettings, Percentiles
from dovetail.autoscalers.vpa.flags import Flag, gates, read
from dovetail.autoscalers.vpa.metrics_api import ExternalSettings
from dovetail.autoscalers.vpa.priority import UpdateThresholds
from dovetail.autoscalers.vpa.recommendation import FormatSettings
from dovetail.autoscalers.vpa.usage import AggregationSettings
from dovetail.autoscalers.vpa.validation import FeatureGates
from dovetail.kube.lease import LeaseTimes
from dovetail.language import message

_GATES = {"CPUStartupBoost": "cpu_startup_boost", "InPlace": "in_place", "PerVPAConfig": "per_vpa_config"}
#: From this -v on upstream's programs say why nothing is done.
DEBUG_VERBOSITY = 3
_LOGS = "log lines go to standard output as JSON"


def _common(address: str) -> list[Flag]:
    klog = [
        ("logtostderr", "bool", "true"),
        ("alsologtostderr", "bool", "false"),
        ("alsologtostderrthreshold", "text", "0"),
        ("legacy-stderr-threshold-behavior", "bool", "true"),
        ("stderrthreshold", "text", "info"),
        ("add-dir-header", "bool", "false"),
        ("log-backtrace-at", "text", ""),
        ("log-dir", "text", ""),
        ("log-file", "text", ""),
        ("log-file-max-size", "int", "1800"),
        ("one-output", "bool", "false"),
        ("skip-headers", "bool", "false"),
        ("skip-log-headers", "bool", "false"),
        ("vmodule", "text", ""),
    ]
    return [
        Flag("address", "text", address, "Where to serve /metrics and /health-check."),
        Flag("kubeconfig", "text", "", "Kubeconfig file; without one kubectl's, then in-cluster."),
        Flag("kube-api-qps", "float", "50", "Requests a second to the API server."),
        Flag("kube-api-burst", "float", "100", "Requests at once to the API server."),
        Flag("vpa-object-namespace", "text", "", "The only namespace to look at; empty is all."),
        Flag("ignored-vpa-object-namespaces", "text", "", "Namespaces to leave alone, separated by commas."),
        Flag("feature-gates", "text", "", "Gates such as InPlace=true,CPUStartupBoost=true,PerVPAConfig=true."),
        Flag("profiling", "bool", "false", "Serve /debug/pprof.", "there is no Go profile of this program"),
        Flag("v", "int", "4", "Log level; from 3 on debug lines are written, such as why a pod is not updated."),
        *(Flag(name, kind, default, "A klog setting.", _LOGS) for name, kind, default in klog),
    ]


def _election(name: str) -> list[Flag]:
    return [
        Flag("leader-elect", "bool", "false", "Work only while holding the lease."),
        Flag("leader-elect-lease-duration", "duration", "15s", "How long a lease is valid."),
        Flag("leader-elect-renew-deadline", "duration", "10s", "How long a leader tries to renew."),
        Flag("leader-elect-retry-period", "duration", "2s", "Between two tries."),
        Flag("leader-elect-resource-lock", "text", "leases", "The kind of lock; only leases exist."),
        Flag("leader-elect-resource-name", "text", name, "Name of the lease."),
        Flag("leader-elect-resource-namespace", "text", "kube-system", "Namespace of the lease."),
    ]


RECOMMENDER_FLAGS: Sequence[Flag] = [
    *_common(":8942"),
    *_election("vpa-recommender-lease"),
    Flag("recommender-name", "text", "default", "Which VPAs to serve, by spec.recommenders."),
    Flag("recommender-interval", "duration", "1m", "Between two reads of metrics."),
    Flag("checkpoints-gc-interval", "duration", "10m", "Between two collections of orphaned checkpoints."),
    Flag("checkpoints-timeout", "duration", "1m", "How long one loop may write checkpoints."),
    Flag("storage", "text", "", "prometheus for history from Prometheus; anything else is checkpoints."),
    Flag("memory-saver", "bool", "false", "Track only pods that a VPA selects."),
    Flag("update-worker-count", "int", "10", "Statuses and checkpoints written at once."),
    Flag("min-checkpoints", "int", "10", "Deprecated.", "upstream's recommender ignores it too"),
    Flag("recommendation-margin-fraction", "float", "0.15", "Safety margin on top of usage."),
    Flag("pod-recommendation-min-cpu-millicores", "float", "25", "Least CPU of a pod."),
    Flag("pod-recommendation-min-memory-mb", "float", "250", "Least memory of a pod, in MiB."),
    Flag("target-cpu-percentile", "float", "0.9", "Percentile of CPU usage for the target."),
    Flag("recommendation-lower-bound-cpu-percentile", "float", "0.5", "The same for the lower bound."),
    Flag("recommendation-upper-bound-cpu-percentile", "float", "0.95", "The same for the upper bound."),
    Flag("confidence-interval-cpu", "duration", "24h", "History at which bounds have confidence 1."),
    Flag("target-memory-percentile", "float", "0.9", "Percentile of memory peaks for the target."),
    Flag("recommendation-lower-bound-memory-percentile", "float", "0.5", "The same for the lower bound."),
    Flag("recommendation-upper-bound-memory-percentile", "float", "0.95", "The same for the upper bound."),
    Flag("confidence-interval-memory", "duration", "24h", "History at which bounds have confidence 1."),
    Flag("humanize-memory", "bool", "false", "Deprecated: memory with two decimals and the largest unit."),
    Flag("round-cpu-millicores", "int", "1", "Round CPU up to a multiple of this."),
    Flag("round-memory-bytes", "int", "1", "Round memory up to a multiple of this."),
    Flag("memory-aggregation-interval", "duration", "24h", "One memory peak is kept for each interval."),
    Flag("memory-aggregation-interval-count", "int", "8", "After so many intervals usage is forgotten."),
    Flag("memory-histogram-decay-half-life", "duration", "24h", "After this a peak weighs half."),
    Flag("cpu-histogram-decay-half-life", "duration", "24h", "After this a CPU sample weighs half."),
    Flag("oom-bump-up-ratio", "float", "1.2", "Memory after an OOM kill, as a multiple."),
    Flag("oom-min-bump-up-bytes", "float", "104857600", "Least increase after an OOM kill."),
    Flag("cpu-integer-post-processor-enabled", "bool", "false", "Whole cores for containers that ask for it."),
    Flag("container-recommendation-max-allowed-cpu", "quantity", "", "maxAllowed of policies without one."),
    Flag("container-recommendation-max-allowed-memory", "quantity", "", "maxAllowed of policies without one."),
    Flag("prometheus-address", "text", "http://prometheus.monitoring.svc", "Where Prometheus is."),
    Flag("prometheus-insecure", "bool", "false", "Do not verify Prometheus' certificate."),
    Flag("prometheus-cadvisor-job-name", "text", "kubernetes-cadvisor", "The job that scrapes cAdvisor."),
    Flag("prometheus-query-timeout", "duration", "5m", "How long a query may take."),
    Flag("prometheus-bearer-token", "text", "", "Token for Prometheus."),
    Flag("prometheus-bearer-token-file", "text", "", "File with the token."),
    Flag("username", "text", "", "Basic authentication; also PROMETHEUS_USERNAME."),
    Flag("password", "text", "", "Basic authentication; also PROMETHEUS_PASSWORD."),
    Flag("history-length", "text", "8d", "How far back history is read."),
    Flag("history-resolution", "text", "1h", "Distance of its samples."),
    Flag("history-cpu-metric", "text", "container_cpu_usage_seconds_total", "CPU metric."),
    Flag("history-memory-metric", "text", "container_memory_working_set_bytes", "Memory metric."),
    Flag("metric-for-pod-labels", "text", 'up{job="kubernetes-pods"}', "The metric with pod labels."),
    Flag("pod-label-prefix", "text", "pod_label_", "Prefix of pod labels there."),
    Flag("pod-namespace-label", "text", "kubernetes_namespace", "Its label for the namespace."),
    Flag("pod-name-label", "text", "kubernetes_pod_name", "Its label for the pod."),
    Flag("container-namespace-label", "text", "namespace", "Label for the namespace in usage."),
    Flag("container-pod-name-label", "text", "pod_name", "Label for the pod in usage."),
    Flag("container-name-label", "text", "name", "Label for the container in usage."),
    Flag("use-external-metrics", "bool", "false", "Read usage from external.metrics.k8s.io."),
    Flag("external-metrics-cpu-metric", "text", "", "The metric to read CPU from."),
    Flag("external-metrics-memory-metric", "text", "", "The metric to read memory from."),
]

UPDATER_FLAGS: Sequence[Flag] = [
    *_common(":8943"),
    *_election("vpa-updater"),
    Flag("updater-interval", "duration", "1m", "Between two loops."),
    Flag("min-replicas", "int", "2", "Groups with fewer live pods are left alone."),
    Flag("eviction-tolerance", "float", "0.5", "Fraction of a group that may be disrupted in one loop."),
    Flag("eviction-rate-limit", "float", "-1", "Evictions a second; 0 or less is unlimited."),
    Flag("eviction-rate-burst", "int", "1", "Evictions at once."),
    Flag("use-admission-controller-status", "bool", "true", "Act only while the admission controller is alive."),
    Flag("in-place-skip-disruption-budget", "bool", "false", "Resize in place without counting disruptions."),
    Flag("admission-controller-status-lease-name", "text", "vpa-admission-controller", "Its lease."),
    Flag("admission-controller-status-lease-namespace", "text", "", "Namespace of the lease; empty is $NAMESPACE."),
    Flag("admission-controller-status-lease-timeout", "duration", "1m", "After this the lease is stale."),
    Flag("pod-update-threshold", "float", "0.1", "Least change worth an update of an old pod."),
    Flag("in-recommendation-bounds-eviction-lifetime-threshold", "duration", "12h", "Age of such a pod."),
    Flag("evict-after-oom-threshold", "duration", "10m", "OOM kills sooner after the start make a pod updatable."),
    Flag("concurrent-cpu-startup-boost-syncs", "int", "1", "Workers that end boosts."),
]

ADMISSION_FLAGS: Sequence[Flag] = [
    *_common(":8944"),
    Flag("client-ca-file", "text", "/etc/tls-certs/caCert.pem", "CA certificate for the API server."),
    Flag("tls-cert-file", "text", "/etc/tls-certs/serverCert.pem", "Certificate of the webhook."),
    Flag("tls-private-key", "text", "/etc/tls-certs/serverKey.pem", "Its key."),
    Flag("reload-cert", "bool", "false", "Follow changes of the certificate files."),
    Flag("generate-certs", "bool", "true", "Without files, keep certificates in secret vpa-webhook-certs."),
    Flag("min-tls-version", "text", "tls1_2", "tls1_2 or tls1_3."),
    Flag("tls-ciphers", "text", "", "Ciphers for TLS 1.2, separated by commas or colons."),
    Flag("port", "int", "8000", "Port of the webhook."),
    Flag("webhook-service", "text", "vpa-webhook", "Service of the webhook."),
    Flag("webhook-address", "text", "", "Address of the webhook, with --register-by-url."),
    Flag("webhook-port", "text", "", "Port of the webhook, with --register-by-url."),
    Flag("webhook-timeout-seconds", "int", "30", "How long the API server waits."),
    Flag("webhook-failure-policy-fail", "bool", "false", "Refuse pods while the webhook is down."),
    Flag("register-webhook", "bool", "true", "Create the webhook configuration."),
    Flag("webhook-labels", "text", "", "Labels of the configuration: key:value,key:value."),
    Flag("register-by-url", "bool", "false", "Register an address instead of a service."),
    Flag("status-lease-name", "text", "vpa-admission-controller", "The lease that says the webhook is alive."),
    Flag("status-lease-namespace", "text", "", "Its namespace; empty is $NAMESPACE."),
    Flag("status-lease-update-interval", "duration", "10s", "Between two renewals."),
    Flag("max-allowed-cpu-boost", "quantity", "", "Most CPU during startup."),
]

TABLES: Mapping[str, Sequence[Flag]] = {
    "recommender": RECOMMENDER_FLAGS,
    "updater": UPDATER_FLAGS,
    "admission-controller": ADMISSION_FLAGS,
}


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    kubeconfig: str = ""
    kube_api_qps: float = 50.0
    kube_api_burst: float = 100.0
    namespace: str = ""
    ignored_namespaces: frozenset[str] = frozenset()
    gates: FeatureGates = FeatureGates()
    verbosity: int = 4

    @property
    def log_level(self) -> str:
        return "debug" if self.verbosity >= DEBUG_VERBOSITY else "info"

    def ignores(self, namespace: str) -> bool:
        return namespace in self.ignored_namespaces or (self.namespace not in ("", namespace))


class ElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = False
    name: str
    namespace: str = "kube-system"
    times: LeaseTimes = LeaseTimes()


class PrometheusSettings(msgspec.Struct, frozen=True, kw_only=True):
    address: str = "http://prometheus.monitoring.svc"
    insecure: bool = False
    job: str = "kubernetes-cadvisor"
    query_timeout_s: float = 300.0
    bearer_token: str = ""
    bearer_token_file: str = ""
    username: str = ""
    password: str = ""
    history_length: str = "8d"
    history_resolution: str = "1h"
    cpu_metric: str = "container_cpu_usage_seconds_total"
    memory_metric: str = "container_memory_working_set_bytes"
    pod_labels_metric: str = 'up{job="kubernetes-pods"}'
    pod_label_prefix: str = "pod_label_"
    pod_namespace_label: str = "kubernetes_namespace"
    pod_name_label: str = "kubernetes_pod_name"
    container_namespace_label: str = "namespace"
    container_pod_label: str = "pod_name"
    container_name_label: str = "name"


class RecommenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    common: CommonSettings = CommonSettings(address=":8942")
    election: ElectionSettings = ElectionSettings(name="vpa-recommender-lease")
    name: str = "default"
    interval_s: float = 60.0
    checkpoints_gc_interval_s: float = 600.0
    checkpoints_timeout_s: float = 60.0
    #: History comes from Prometheus instead of checkpoints.
    from_prometheus: bool = False
    #: Usage comes from external.metrics.k8s.io instead of metrics.k8s.io.
    external: ExternalSettings | None = None
    memory_saver: bool = False
    workers: int = 10
    aggregation: AggregationSettings = AggregationSettings()
    estimators: EstimatorSettings = EstimatorSettings()
    formats: FormatSettings = FormatSettings()
    prometheus: PrometheusSettings = PrometheusSettings()


class UpdaterSettings(msgspec.Struct, frozen=True, kw_only=True):
    common: CommonSettings = CommonSettings(address=":8943")
    election: ElectionSettings = ElectionSettings(name="vpa-updater")
    interval_s: float = 60.0
    #: Evictions a second; None is unlimited.
    rate_limit: float | None = None
    rate_burst: int = 1
    require_admission_status: bool = True
    status_lease_name: str = "vpa-admission-controller"
    status_lease_namespace: str = "kube-system"
    status_lease_timeout_s: float = 60.0
    disruption: DisruptionSettings = DisruptionSettings()
    thresholds: UpdateThresholds = UpdateThresholds()
    boost_workers: int = 1


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    common: CommonSettings = CommonSettings(address=":8944")
    ca_file: str = "/etc/tls-certs/caCert.pem"
    cert_file: str = "/etc/tls-certs/serverCert.pem"
    key_file: str = "/etc/tls-certs/serverKey.pem"
    reload_cert: bool = False
    generate_certs: bool = True
    min_tls_version: str = "tls1_2"
    tls_ciphers: str = ""
    port: int = 8000
    service: str = "vpa-webhook"
    #: Set with --register-by-url: what the API server calls instead of the service.
    url: str | None = None
    webhook_timeout_s: int = 30
    fail_closed: bool = False
    register: bool = True
    webhook_labels: Mapping[str, str] = {}
    pod_namespace: str = "kube-system"
    status_lease_name: str = "vpa-admission-controller"
    status_lease_namespace: str = "kube-system"
    status_lease_interval_s: float = 10.0
    max_cpu_boost: str = ""


def _common_settings(values: Mapping[str, Any]) -> CommonSettings:
    ignored = frozenset(filter(None, values["ignored_vpa_object_namespaces"].split(",")))
    if ignored and values["vpa_object_namespace"]:
        raise FlagError(
            message("--vpa-object-namespace and --ignored-vpa-object-namespaces exclude each other; give one")
        )
    listen_address("address", values["address"])
    _positive(values, "kube_api_qps", "kube_api_burst")
    return CommonSettings(
        address=values["address"],
        kubeconfig=values["kubeconfig"],
        kube_api_qps=values["kube_api_qps"],
        kube_api_burst=values["kube_api_burst"],
        namespace=values["vpa_object_namespace"],
        ignored_namespaces=ignored,
        gates=FeatureGates(**gates(values["feature_gates"], _GATES)),
        verbosity=values["v"],
    )


def _election_settings(values: Mapping[str, Any]) -> ElectionSettings:
    if values["leader_elect_resource_lock"] != "leases":
        raise FlagError(
            message(
                "--leader-elect-resource-lock: {lock!r}: only leases exist", lock=values["leader_elect_resource_lock"]
            )
        )
    try:
        times = LeaseTimes(
            duration=values["leader_elect_lease_duration"],
            deadline=values["leader_elect_renew_deadline"],
            retry=values["leader_elect_retry_period"],
        )
    except ValueError as error:
        raise FlagError(f"--leader-elect-lease-duration: {error}") from error
    return ElectionSettings(
        enabled=values["leader_elect"],
        name=values["leader_elect_resource_name"],
        namespace=values["leader_elect_resource_namespace"],
        times=times,
    )


def _positive(values: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if values[key] <= 0:
            raise FlagError(
                message("--{flag}: {value:g} has to be more than 0", flag=key.replace("_", "-"), value=values[key])
            )


def recommender_settings(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[RecommenderSettings, list[str]]:
    values, notes = read(RECOMMENDER_FLAGS, arguments)
    common = _common_settings(values)
    external = {name: values[f"external_metrics_{name}_metric"] for name in ("cpu", "memory")}
    external = {name: metric for name, metric in external.items() if metric}
    if not values["use_external_metrics"]:
        notes += [f"--external-metrics-{name}-metric has no effect without --use-external-metrics" for name in external]
    _positive(values, "recommender_interval", "memory_aggregation_interval", "update_worker_count")
    most = {name: values[f"container_recommendation_max_allowed_{name}"] for name in ("cpu", "memory")}
    settings = RecommenderSettings(
        common=common,
        election=_election_settings(values),
        name=values["recommender_name"],
        interval_s=values["recommender_interval"],
        external=ExternalSettings(metrics=external, container_label=values["container_name_label"])
        if values["use_external_metrics"]
        else None,
        checkpoints_gc_interval_s=values["checkpoints_gc_interval"],
        checkpoints_timeout_s=values["checkpoints_timeout"],
        from_prometheus=values["storage"] == "prometheus",
        memory_saver=values["memory_saver"],
        workers=values["update_worker_count"],
        aggregation=AggregationSettings(
            memory_interval_s=values["memory_aggregation_interval"],
            memory_interval_count=values["memory_aggregation_interval_count"],
            memory_half_life_s=values["memory_histogram_decay_half_life"],
            cpu_half_life_s=values["cpu_histogram_decay_half_life"],
            oom_bump_up_ratio=values["oom_bump_up_ratio"],
            oom_min_bump_up_bytes=values["oom_min_bump_up_bytes"],
            per_vpa_config=common.gates.per_vpa_config,
        ),
        estimators=EstimatorSettings(
            margin_fraction=values["recommendation_margin_fraction"],
            pod_min_cpu_millicores=values["pod_recommendation_min_cpu_millicores"],
            pod_min_memory_mb=values["pod_recommendation_min_memory_mb"],
            cpu=_percentiles(values, "cpu"),
            memory=_percentiles(values, "memory"),
        ),
        formats=FormatSettings(
            humanize_memory=values["humanize_memory"],
            round_cpu_millicores=values["round_cpu_millicores"],
            round_memory_bytes=values["round_memory_bytes"],
            integer_cpu=values["cpu_integer_post_processor_enabled"],
            max_allowed={name: text for name, text in most.items() if text},
        ),
        prometheus=_prometheus(values, environment),
    )
    return settings, notes


def _percentiles(values: Mapping[str, Any], resource: str) -> Percentiles:
    return Percentiles(
        target=values[f"target_{resource}_percentile"],
        lower=values[f"recommendation_lower_bound_{resource}_percentile"],
        upper=values[f"recommendation_upper_bound_{resource}_percentile"],
        confidence_interval_s=values[f"confidence_interval_{resource}"],
    )


def _prometheus(values: Mapping[str, Any], environment: Mapping[str, str]) -> PrometheusSettings:
    credentials = ("prometheus_bearer_token", "prometheus_bearer_token_file", "username")
    if all(values[name] for name in credentials):
        raise FlagError(
            "--prometheus-bearer-token, --prometheus-bearer-token-file and --username exclude each other; give one"
        )
    return PrometheusSettings(
        address=values["prometheus_address"],
        insecure=values["prometheus_insecure"],
        job=values["prometheus_cadvisor_job_name"],
        query_timeout_s=values["prometheus_query_timeout"],
        bearer_token=values["prometheus_bearer_token"],
        bearer_token_file=values["prometheus_bearer_token_file"],
        username=values["username"] or environment.get("PROMETHEUS_USERNAME", ""),
        password=values["password"] or environment.get("PROMETHEUS_PASSWORD", ""),
        history_length=values["history_length"],
        history_resolution=values["history_resolution"],
        cpu_metric=values["history_cpu_metric"],
        memory_metric=values["history_memory_metric"],
        pod_labels_metric=values["metric_for_pod_labels"],
        pod_label_prefix=values["pod_label_prefix"],
        pod_namespace_label=values["pod_namespace_label"],
        pod_name_label=values["pod_name_label"],
        container_namespace_label=values["container_namespace_label"],
        container_pod_label=values["container_pod_name_label"],
        container_name_label=values["container_name_label"],
    )


def updater_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[UpdaterSettings, list[str]]:
    values, notes = read(UPDATER_FLAGS, arguments)
    common = _common_settings(values)
    _positive(
        values, "updater_interval", "admission_controller_status_lease_timeout", "concurrent_cpu_startup_boost_syncs"
    )
    rate = values["eviction_rate_limit"]
    namespace = values["admission_controller_status_lease_namespace"]
    settings = UpdaterSettings(
        common=common,
        election=_election_settings(values),
        interval_s=values["updater_interval"],
        rate_limit=rate if rate > 0 else None,
        rate_burst=values["eviction_rate_burst"],
        require_admission_status=values["use_admission_controller_status"],
        status_lease_name=values["admission_controller_status_lease_name"],
        status_lease_namespace=namespace or environment.get("NAMESPACE") or "kube-system",
        status_lease_timeout_s=values["admission_controller_status_lease_timeout"],
        disruption=DisruptionSettings(
            min_replicas=values["min_replicas"],
            tolerance_fraction=values["eviction_tolerance"],
            in_place_skips_budget=values["in_place_skip_disruption_budget"],
        ),
        thresholds=UpdateThresholds(
            min_change=values["pod_update_threshold"],
            pod_lifetime_s=values["in_recommendation_bounds_eviction_lifetime_threshold"],
            evict_after_oom_s=values["evict_after_oom_threshold"],
            per_vpa_config=common.gates.per_vpa_config,
        ),
        boost_workers=values["concurrent_cpu_startup_boost_syncs"],
    )
    return settings, notes


def admission_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[AdmissionSettings, list[str]]:
    values, notes = read(ADMISSION_FLAGS, arguments)
    _positive(values, "status_lease_update_interval", "webhook_timeout_seconds")
    if values["min_tls_version"] not in ("tls1_2", "tls1_3"):
        raise FlagError(
            message("--min-tls-version: {version!r} is neither tls1_2 nor tls1_3", version=values["min_tls_version"])
        )
    if not 0 < values["port"] < 65536:
        raise FlagError(message("--port={port}: ports go from 1 to 65535", port=values["port"]))
    namespace = environment.get("NAMESPACE") or "kube-system"
    address, port = values["webhook_address"], values["webhook_port"]
    if values["register_by_url"] and not address:
        raise FlagError("--register-by-url needs --webhook-address, such as https://10.0.0.1")
    url = f"{address}:{port}" if port else address
    settings = AdmissionSettings(
        common=_common_settings(values),
        ca_file=values["client_ca_file"],
        cert_file=values["tls_cert_file"],
        key_file=values["tls_private_key"],
        reload_cert=values["reload_cert"],
        generate_certs=values["generate_certs"],
        min_tls_version=values["min_tls_version"],
        tls_ciphers=_ciphers(values["tls_ciphers"]),
        port=values["port"],
        service=values["webhook_service"],
        url=url if values["register_by_url"] else None,
        webhook_timeout_s=values["webhook_timeout_seconds"],
        fail_closed=values["webhook_failure_policy_fail"],
        register=values["register_webhook"],
        webhook_labels=_labels(values["webhook_labels"]),
        pod_namespace=namespace,
        status_lease_name=values["status_lease_name"],
        status_lease_namespace=values["status_lease_namespace"] or namespace,
        status_lease_interval_s=values["status_lease_update_interval"],
        max_cpu_boost=values["max_allowed_cpu_boost"],
    )
    return settings, notes


#: Go's names of ciphers that OpenSSL calls otherwise.
_CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{name}": f"ECDHE-{key}-{other}"
    for key in ("RSA", "ECDSA")
    for name, other in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}


def _ciphers(text: str) -> str:
    """A list of ciphers by OpenSSL's names; a name that neither library has is an error."""
    names = [_CIPHERS.get(name, name) for name in text.replace(",", ":").split(":") if name]
    if names:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(":".join(names))
        except ssl.SSLError as error:
            raise FlagError(
                f"--tls-ciphers: {text!r}: no cipher has this name, such as {next(iter(_CIPHERS))}"
            ) from error
    return ":".join(names)


def _labels(text: str) -> dict[str, str]:
    """Labels as `key:value,key:value`, perhaps in quotes that a manifest left, and with spaces around their parts."""
    labels = {}
    bare = text.strip('"')
    for part in bare.split(",") if bare else ():
        key, colon, value = part.partition(":")
        if not colon or not key.strip():
            raise FlagError(message("--webhook-labels: {part!r}: write key:value", part=part))
        labels[key.strip()] = value.strip()
    return labels
