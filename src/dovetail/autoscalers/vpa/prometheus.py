"""Usage before the recommender started, from Prometheus (`--storage=prometheus`)."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from dovetail.autoscalers.vpa.metrics import RecommenderMetrics
from dovetail.autoscalers.vpa.model import HistorySample, PodHistory
from dovetail.autoscalers.vpa.settings import PrometheusSettings
from dovetail.autoscalers.vpa.usage import bounded_amount
from dovetail.clock import Clock

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}


class PrometheusError(Exception):
    """No history could be read; the message says which query failed and how."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


def duration_s(text: str) -> float:
    """A duration as Prometheus writes it, `8d` or `1h30m`, in seconds."""
    parts = re.findall(r"([0-9]+)(ms|[smhdwy])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise PrometheusError(f"{text!r} is not a duration; write one such as 8d or 1h")
    return sum(int(number) * _UNITS_S[unit] for number, unit in parts)


def usage_queries(settings: PrometheusSettings, namespace: str = "") -> dict[str, str]:
    """The queries for cpu and memory."""
    parts = [f'job="{settings.job}"'] if settings.job else []
    pod, name = settings.container_pod_label, settings.container_name_label
    parts += [f'{pod}=~".+"', f'{name}!="POD"', f'{name}!=""']
    if namespace:
        parts.append(f'{settings.container_namespace_label}="{namespace}"')
    chosen = ", ".join(parts)
    return {
        "cpu": f"rate({settings.cpu_metric}{{{chosen}}}[{settings.history_resolution}])",
        "memory": f"{settings.memory_metric}{{{chosen}}}",
    }


def histories(
    usage: Mapping[str, list[dict[str, Any]]], labels: list[dict[str, Any]], settings: PrometheusSettings
) -> list[PodHistory]:
    """Pods with their samples in order of time, and the labels they had last, if any. Raises PrometheusError."""
    samples: dict[tuple[str, str], dict[str, list[HistorySample]]] = {}
    for resource, raw in usage.items():
        unit = 1000.0 if resource == "cpu" else 1.0
        for series in _series(raw):
            keys = (
                settings.container_namespace_label,
                settings.container_pod_label,
                settings.container_name_label,
            )
            namespace, pod, container = (_label(series, key) for key in keys)
            listed = samples.setdefault((namespace, pod), {}).setdefault(container, [])
            for time_s, text in series.values:
                listed.append(HistorySample(time_s, resource, bounded_amount(float(text) * unit)))
    last: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}
    for series in _series(labels):
        key = (_label(series, settings.pod_namespace_label), _label(series, settings.pod_name_label))
        if not series.values:
            continue
        seen = series.values[-1][0]
        if key not in last or seen > last[key][0]:
            prefix = settings.pod_label_prefix
            prefixed = {name: value for name, value in series.metric.items() if name.startswith(prefix)}
            last[key] = (seen, {name.removeprefix(prefix): value for name, value in prefixed.items()})
    for containers in samples.values():
        for listed in containers.values():
            listed.sort(key=lambda sample: sample.time_s)
    return [
        PodHistory(namespace, pod, last.get((namespace, pod), (0.0, {}))[1], samples.get((namespace, pod), {}))
        for namespace, pod in dict.fromkeys((*samples, *last))
    ]


def labels_query(settings: PrometheusSettings) -> str:
    """The query for pod labels: as it is set, over the history's length where it names no range of its own.

    Without a range Prometheus answers with a vector, from which no last labels can be read.
    """
    metric = settings.pod_labels_metric.strip()
    return metric if metric.endswith("]") else f"{metric}[{settings.history_length}]"


async def fetch_history(
    settings: PrometheusSettings, clock: Clock, metrics: RecommenderMetrics, namespace: str = ""
) -> list[PodHistory]:
    """Ask Prometheus for the pods of a namespace, or of all. Raises PrometheusError."""
    end = clock.now().timestamp()
    span = {
        "start": end - duration_s(settings.history_length),
        "end": end,
        "step": duration_s(settings.history_resolution),
    }
    async with _session(settings) as session:
        usage = {
            resource: await _ask(session, settings, clock, metrics, "query_range", {"query": query, **span})
            for resource, query in usage_queries(settings, namespace).items()
        }
        instant_query = {"query": labels_query(settings), "time": end}
        labels = await _ask(session, settings, clock, metrics, "query", instant_query)
    return histories(usage, labels, settings)


def _session(settings: PrometheusSettings) -> aiohttp.ClientSession:
    headers = {}
    token = settings.bearer_token
    if settings.bearer_token_file:
        try:
            token = Path(settings.bearer_token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise PrometheusError(f"--prometheus-bearer-token-file: {error}") from error
    if token:
        headers["Authorization"] = f"Bearer {token}"
    elif settings.username and settings.password:
        credentials = base64.b64encode(f"{settings.username}:{settings.password}".encode()).decode()
        headers["Authorization"] = f"Basic {credentials}"
    context: ssl.SSLContext | bool = True
    if settings.insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=context))


async def _ask(
    session: aiohttp.ClientSession,
    settings: PrometheusSettings,
    clock: Clock,
    metrics: RecommenderMetrics,
    path: str,
    parameters: Mapping[str, Any],
) -> list[dict[str, Any]]:
    url = f"{settings.address.rstrip('/')}/api/v1/{path}"
    form = {name: str(value) for name, value in parameters.items()}
    began, code = clock.monotonic(), "error"
    try:
        async with asyncio.timeout(settings.query_timeout_s), session.post(url, data=form) as response:
            code, body = str(response.status), await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise PrometheusError(f"{url}: {parameters['query']}: {error or 'no answer in time'}") from error
    finally:
        metrics.prometheus_requests.labels(code, "post").inc()
        metrics.prometheus_durations.labels(code, "post").observe(clock.monotonic() - began)
    try:
        answer = msgspec.json.decode(body)
        data = answer["data"]
        if data["resultType"] != "matrix":
            raise PrometheusError(f"{url}: {parameters['query']}: got a {data['resultType']}, not a matrix")
        return list(data["result"])
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise PrometheusError(f"{url}: {parameters['query']}: status {code}: {body[:200]!r}") from error


def _series(raw: list[dict[str, Any]]) -> list[_Series]:
    try:
        return msgspec.convert(raw, list[_Series])
    except msgspec.ValidationError as error:
        raise PrometheusError(f"an answer of Prometheus cannot be read: {error}") from error


def _label(series: _Series, name: str) -> str:
    if name not in series.metric:
        raise PrometheusError(f"no {name} label on {series.metric}; see the --…-label flags")
    return series.metric[name]
