"""Metrics of AWS calls, under the names that dashboards and alerts of Karpenter use."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from dovetail.cloud.aws.client import CallRecord
from dovetail.cloud.aws.errors import THROTTLE_CODES

_SERVICES = {"ec2": "EC2", "eks": "EKS", "iam": "IAM", "pricing": "Pricing", "sqs": "SQS", "ssm": "SSM", "sts": "STS"}
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
_RETRIES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
_GATHERED = (0.05, 0.1, 0.25, 0.5, 1.0)


class AwsMetrics:
    """What the provider reports: calls, launches that EC2 refused, terminations that failed, batches."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._define_requests(registry)
        self._define_outcomes(registry)

    def _define_requests(self, registry: CollectorRegistry) -> None:
        labels = ("service", "action", "status_code")
        self._requests = Counter(
            "aws_sdk_go_request", "AWS requests, all attempts of one counted once.", labels, registry=registry
        )
        self._request_seconds = Histogram(
            "aws_sdk_go_request_duration_seconds",
            "Time of an AWS request with all its attempts.",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        self._attempts = Counter("aws_sdk_go_request_attempt", "Attempts of AWS requests.", labels, registry=registry)
        self._attempt_seconds = Histogram(
            "aws_sdk_go_request_attempt_duration_seconds",
            "Time of an attempt.",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        self._retries = Histogram(
            "aws_sdk_go_request_retry_count",
            "Repetitions of an AWS request.",
            labels,
            registry=registry,
            buckets=_RETRIES,
        )
        self._errors = Counter(
            "dovetail_aws_request_errors",
            "Attempts of AWS requests that failed, by AWS's code.",
            ("service", "action", "code"),
            registry=registry,
        )
        self._throttles = Counter(
            "dovetail_aws_throttles",
            "Attempts of AWS requests that AWS throttled.",
            ("service", "action"),
            registry=registry,
        )

    def _define_outcomes(self, registry: CollectorRegistry) -> None:
        """Launches, terminations and batches."""
        self._launch_failures = Counter(
            "karpenter_cloudprovider_instance_launch_failures",
            "Offerings that EC2 refused to launch.",
            ("zone", "zone_id", "capacity_type", "reason"),
            registry=registry,
        )
        self._termination_failures = Counter(
            "karpenter_cloudprovider_instance_termination_failures",
            "Instances whose termination failed.",
            ("zone", "zone_id"),
            registry=registry,
        )
        self._batch_size = Histogram(
            "karpenter_cloudprovider_batcher_batch_size",
            "Requests in a batch.",
            ("batcher",),
            registry=registry,
            buckets=_SIZES,
        )
        self._batch_seconds = Histogram(
            "karpenter_cloudprovider_batcher_batch_time_seconds",
            "Time a batch was gathered for.",
            ("batcher",),
            registry=registry,
            buckets=_GATHERED,
        )

    def call(self, record: CallRecord) -> None:
        service = _SERVICES.get(record.service, record.service)
        action = "".join(part.capitalize() for part in record.operation.split("_"))
        labels = (service, action, str(record.status))
        self._attempts.labels(*labels).inc()
        self._attempt_seconds.labels(*labels).observe(record.seconds)
        if record.error and not (record.dry and record.error == "DryRunOperation"):
            self._errors.labels(service, action, record.error).inc()
        if record.error in THROTTLE_CODES:
            self._throttles.labels(service, action).inc()
        if record.request_seconds is not None:
            self._requests.labels(*labels).inc()
            self._request_seconds.labels(*labels).observe(record.request_seconds)
            self._retries.labels(*labels).observe(record.attempt - 1)

    def launch_refused(self, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
        self._launch_failures.labels(zone, zone_id, capacity_type, reason).inc()

    def termination_failed(self, zone: str, zone_id: str) -> None:
        self._termination_failures.labels(zone, zone_id).inc()

    def batch(self, batcher: str, size: int, seconds: float) -> None:
        self._batch_size.labels(batcher).observe(size)
        self._batch_seconds.labels(batcher).observe(seconds)
