"""Files of other tools as recordings: what they say is in it, and what they cannot say is refused with its place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cli.main import main
from dovetail.errors import UserError
from dovetail.offline.conversion.convert import FORMATS, convert, entries_of
from dovetail.offline.conversion.entries import NotThisFormat
from dovetail.offline.recording import OfferingKey, RecordedPrice, read


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def audit(
    time: str, verb: str, name: str, answer: dict[str, Any] | None = None, part: str = "", **more: Any
) -> dict[str, Any]:
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": f"{time}-{verb}",
        "stage": "ResponseComplete",
        "verb": verb,
        "objectRef": {"resource": "pods", "namespace": "shop", "name": name, "apiVersion": "v1", "subresource": part},
        "responseStatus": {"code": 201},
        "stageTimestamp": f"2026-01-01T00:{time}.000000Z",
        **more,
    }
    if answer is not None:
        event["responseObject"] = answer
    return event


AUDIT = [
    audit("00:10", "create", "", pod("web-0")),
    audit("00:20", "create", "web-0", None, "binding", requestObject={"target": {"kind": "Node", "name": "a"}}),
    audit("00:25", "create", "", pod("refused"), responseStatus={"code": 403}),
    audit("00:26", "get", "web-0", pod("web-0")),
    audit("01:00", "create", "", pod("web-1")),
    audit("02:00", "delete", "web-1"),
]


def write_audit(folder: Path) -> Path:
    path = folder / "audit.log"
    path.write_text("\n".join(map(json.dumps, AUDIT)) + "\n", encoding="utf-8")
    return path


def test_an_audit_log_gives_pods_their_bindings_and_their_end(tmp_path: Path) -> None:
    recording = convert([write_audit(tmp_path)], tmp_path / "out.dvrec")
    assert recording.header.source == "audit-log"
    events = list(recording.events(recording.start, recording.end))
    assert [(event.type, event.object["metadata"]["name"]) for event in events] == [
        ("MODIFIED", "web-0"),
        ("ADDED", "web-1"),
        ("DELETED", "web-1"),
    ]
    assert events[0].object["spec"]["nodeName"] == "a"
    assert recording.start == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "env": [{"name": "TOKEN"}]}]}}},
}
TRACE = {
    "version": 2,
    "config": {"trackedObjects": {}},
    "events": [
        {"ts": 1767225600, "applied_objs": [DEPLOYMENT], "deleted_objs": []},
        {"ts": 1767225900, "applied_objs": [], "deleted_objs": [DEPLOYMENT]},
    ],
}
ORDERED = [2, {}, [[1767225600, [DEPLOYMENT], []], [1767225900, [], [DEPLOYMENT]]], {}]


@pytest.mark.parametrize(
    "data",
    [json.dumps(TRACE).encode(), msgspec.msgpack.encode(TRACE), msgspec.msgpack.encode(ORDERED)],
    ids=["json", "named", "ordered"],
)
def test_a_simkube_trace_gives_workloads(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "day.sktrace"
    path.write_bytes(data)
    recording = convert([path], tmp_path / "out.dvrec")
    (deployment,) = recording.objects_at(recording.start)
    assert deployment["spec"]["replicas"] == 2
    assert "env" not in deployment["spec"]["template"]["spec"]["containers"][0]
    assert [event.type for event in recording.events(recording.start, recording.end)] == ["DELETED"]
    assert (recording.end - recording.start).total_seconds() == 300


def series(name: str, values: list[tuple[int, str]], **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "values": [[1767225600 + at, value] for at, value in values]}


PROMETHEUS = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            series("kube_node_status_allocatable", [(0, "2"), (60, "2"), (120, "2")], node="a", resource="cpu"),
            series(
                "kube_pod_container_resource_requests",
                [(0, "0.5"), (60, "0.5")],
                pod="web-0",
                namespace="shop",
                container="web",
                node="a",
                resource="cpu",
            ),
            series(
                "kube_pod_container_resource_requests",
                [(0, "1024")],
                pod="web-0",
                namespace="shop",
                container="web",
                node="a",
                resource="memory",
            ),
            series("up", [(0, "1")], job="x"),
        ],
    },
}


def test_a_prometheus_export_gives_nodes_and_pods_as_long_as_they_have_samples(tmp_path: Path) -> None:
    path = tmp_path / "range.json"
    path.write_text(json.dumps(PROMETHEUS), encoding="utf-8")
    recording = convert([path], tmp_path / "out.dvrec")
    node, web = recording.objects_at(recording.start)
    assert node["status"]["allocatable"] == {"cpu": "2"}
    assert web["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "0.5", "memory": "1024"}
    assert web["spec"]["nodeName"] == "a"
    (gone,) = recording.events(recording.start, recording.end)
    assert gone.type == "DELETED" and (gone.time - recording.start).total_seconds() == 120


LEGACY = """lineItem/UsageType,lineItem/UsageStartDate,lineItem/UsageAmount,lineItem/UnblendedCost,\
lineItem/AvailabilityZone,product/regionCode
APN2-BoxUsage:m5.large,2026-01-01T00:00:00Z,1,0.118,ap-northeast-2a,ap-northeast-2
APN2-SpotUsage:m5.large,2026-01-01T01:00:00Z,2,0.08,ap-northeast-2b,ap-northeast-2
APN2-DataTransfer-Out-Bytes,2026-01-01T00:00:00Z,5,0.4,,ap-northeast-2
APN2-BoxUsage:m5.large,2026-01-01T02:00:00Z,0,0,ap-northeast-2a,ap-northeast-2
"""


@pytest.mark.parametrize("current", [False, True], ids=["legacy", "cur2"])
def test_cost_and_usage_rows_give_prices(tmp_path: Path, current: bool) -> None:
    text = LEGACY
    if current:
        for old, new in (
            ("lineItem/UsageType", "line_item_usage_type"),
            ("lineItem/UsageStartDate", "line_item_usage_start_date"),
            ("lineItem/UsageAmount", "line_item_usage_amount"),
            ("lineItem/UnblendedCost", "line_item_unblended_cost"),
            ("lineItem/AvailabilityZone", "line_item_availability_zone"),
            ("product/regionCode", "product_region_code"),
        ):
            text = text.replace(old, new)
    path = tmp_path / "cur.csv"
    path.write_text(text, encoding="utf-8")
    recording = convert([path], tmp_path / "out.dvrec")
    on_demand = OfferingKey("ap-northeast-2", "m5.large", "ap-northeast-2a", "on-demand")
    spot = OfferingKey("ap-northeast-2", "m5.large", "ap-northeast-2b", "spot")
    assert recording.prices_at(recording.start) == {on_demand: RecordedPrice(0.118, "cost and usage report")}
    assert recording.prices_at(recording.end)[spot].dollars == 0.04


def test_several_files_become_one_recording(tmp_path: Path) -> None:
    prices = tmp_path / "cur.csv"
    prices.write_text(LEGACY, encoding="utf-8")
    target = tmp_path / "out.dvrec"
    outcome = CliRunner().invoke(
        main, ["record", str(target), "--convert", str(write_audit(tmp_path)), "--convert", str(prices), "--anonymise"]
    )
    assert outcome.exit_code == 0, outcome.output
    assert "audit-log,cost-and-usage" in outcome.output
    recording = read(target)
    events = [event.object for event in recording.events(recording.start, recording.end)]
    assert len(events) >= 3 and b"shop" not in msgspec.json.encode(events)
    again = CliRunner().invoke(main, ["record", str(target), "--convert", str(prices)])
    assert again.exit_code == 2 and "exists" in again.output


def test_what_cannot_be_read_is_refused_with_its_place(tmp_path: Path) -> None:
    def said(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError) as caught:
            convert([path], tmp_path / "out.dvrec")
        assert not (tmp_path / "out.dvrec").exists()
        return caught.value.message

    assert "none of the formats" in said("x.txt", "hello")
    assert "line 2: no audit event" in said("audit.log", json.dumps(AUDIT[0]) + '\n{"kind": "Pod"}\n')
    assert "columns are missing: lineItem/UsageStartDate" in said("cur.csv", "lineItem/UsageType\nx\n")
    assert "line 2: could not convert" in said("cur2.csv", LEGACY.split("\n")[0] + "\nBoxUsage:m5.large,x,y,z,a,b\n")
    assert "events[0]" in said("t.json", json.dumps({"events": [{"applied_objs": []}]}))
    assert "no series of" in said("p.json", '{"data": {"resultType": "matrix", "result": []}}')


@given(st.sampled_from(FORMATS), st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_hostile_bytes_are_refused_and_break_nothing(form: str, data: bytes) -> None:
    try:
        entries_of(form, data)
    except NotThisFormat:
        return
