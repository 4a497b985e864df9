"""Metrics of AWS calls, launches and terminations, by the names that Karpenter's users alert on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from dovetail.cloud.aws.client import CallRecord
from dovetail.controllers.metrics.aws_calls import AwsMetrics


def test_calls_are_counted_by_service_action_and_status_with_latency_retries_and_throttles() -> None:
    registry = CollectorRegistry()
    metrics = AwsMetrics(registry)
    first = CallRecord("ec2", "create_fleet", 0.0, "RequestLimitExceeded", status=503, seconds=0.5)
    last = CallRecord("ec2", "create_fleet", 1.0, status=200, attempt=2, seconds=2.0, request_seconds=3.0)
    metrics.call(first)
    metrics.call(last)
    fleet = {"service": "EC2", "action": "CreateFleet"}

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, fleet | labels)

    assert value("aws_sdk_go_request_total", status_code="200") == 1.0
    assert value("aws_sdk_go_request_total", status_code="503") is None
    assert value("aws_sdk_go_request_attempt_total", status_code="503") == 1.0
    assert value("aws_sdk_go_request_duration_seconds_sum", status_code="200") == 3.0
    assert value("aws_sdk_go_request_attempt_duration_seconds_sum", status_code="200") == 2.0
    assert value("aws_sdk_go_request_retry_count_sum", status_code="200") == 1.0
    assert value("dovetail_aws_request_errors_total", code="RequestLimitExceeded") == 1.0
    assert value("dovetail_aws_throttles_total") == 1.0


def test_a_dry_run_that_would_have_gone_well_is_no_error() -> None:
    registry = CollectorRegistry()
    AwsMetrics(registry).call(CallRecord("ec2", "run_instances", 0.0, "DryRunOperation", dry=True, status=412))
    labels = {"service": "EC2", "action": "RunInstances", "code": "DryRunOperation"}
    assert registry.get_sample_value("dovetail_aws_request_errors_total", labels) is None


def test_refused_launches_failed_terminations_and_batches_have_karpenters_names() -> None:
    registry = CollectorRegistry()
    metrics = AwsMetrics(registry)
    metrics.launch_refused("eu-west-1a", "euw1-az1", "spot", "InsufficientInstanceCapacity")
    metrics.termination_failed("eu-west-1a", "euw1-az1")
    metrics.batch("terminate_instances", 7, 0.1)
    zone = {"zone": "eu-west-1a", "zone_id": "euw1-az1"}
    launch = zone | {"capacity_type": "spot", "reason": "InsufficientInstanceCapacity"}
    batcher = {"batcher": "terminate_instances"}
    prefix = "karpenter_cloudprovider_"
    assert registry.get_sample_value(f"{prefix}instance_launch_failures_total", launch) == 1.0
    assert registry.get_sample_value(f"{prefix}instance_termination_failures_total", zone) == 1.0
    assert registry.get_sample_value(f"{prefix}batcher_batch_size_sum", batcher) == 7.0
    assert registry.get_sample_value(f"{prefix}batcher_batch_time_seconds_count", batcher) == 1.0
