"""HPAs and VPAs: their targets beside what is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.view.observer import Observer
from dovetail.web.catalogue import Catalogue
from dovetail.web.context import PageContext
from dovetail.web.layout import card, table
from dovetail.web.markup import Markup, isolated, join, link, tag

MAX_ROWS = 1000
Json = Mapping[str, Any]


def autoscalers(context: PageContext, observer: Observer) -> Markup:
    t = context.t
    return join(tag("h1", t("Autoscalers")), _hpas(context, observer), _vpas(context, observer))


def _hpas(context: PageContext, observer: Observer) -> Markup:
    t = context.t
    if not context.rights.hpas:
        return card("HorizontalPodAutoscaler", tag("p", t("Needs the right to list them."), class_="empty"))
    rows: list[list[Markup | str]] = []
    for hpa in sorted(observer.hpas.store.all(), key=_key)[:MAX_ROWS]:
        metadata, spec, status = hpa["metadata"], hpa.get("spec") or {}, hpa.get("status") or {}
        rows.append(
            [
                link(_key(hpa), "hpa", metadata.get("namespace", ""), metadata["name"]),
                _target(spec.get("scaleTargetRef") or {}, metadata.get("namespace", "")),
                replicas_bar(spec, status, t),
                join(*(tag("div", isolated(line)) for line in metric_lines(spec, status, t))),
                isolated(_limit(status, t)),
            ]
        )
    columns = [
        ("HPA", ""),
        (t("Target"), ""),
        (t("Replicas"), ""),
        (t("Metrics: used / target"), ""),
        (t("Limited"), ""),
    ]
    return card("HorizontalPodAutoscaler", table("HPA", columns, rows, t("There are none."), hidden=True))


def replicas_bar(spec: Json, status: Json, t: Catalogue) -> Markup:
    """The replicas between the least and the most that may be."""
    least, most = int(spec.get("minReplicas") or 1), int(spec.get("maxReplicas") or 1)
    now, desired = status.get("currentReplicas"), status.get("desiredReplicas")
    if now is None:
        return tag("span", t("unknown"), class_="unknown")
    share = 100 * (int(now) - least) / (most - least) if most > least else 100.0
    width = max(0.0, min(100.0, share))
    drawn = Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bg" width="100" height="8"/><rect class="fg" width="{width:.1f}" height="8"/>'
        "</svg>"
    )
    text = t("{now} of {least} to {most}", now=now, least=least, most=most)
    return join(drawn, tag("span", text + (f" → {desired}" if desired not in (None, now) else "")))


def metric_lines(spec: Json, status: Json, t: Catalogue) -> list[str]:
    """`cpu 63% / 70%`, one line a metric; what has not been measured is unknown."""
    current = {
        _metric_name(current_metric): current_metric
        for current_metric in status.get("currentMetrics") or ()
        if current_metric
    }
    lines = []
    for metric in spec.get("metrics") or ():
        name = _metric_name(metric)
        target = (metric.get(_source(metric)) or {}).get("target") or {}
        measured = current.get(name) or {}
        value = (measured.get(_source(measured)) or {}).get("current") or {} if measured else {}
        lines.append(f"{name} {_value(value, t)} / {_value(target, t)}")
    return lines


def _source(metric: Json) -> str:
    kind = str(metric.get("type", ""))
    return kind[:1].lower() + kind[1:]


def _metric_name(metric: Json) -> str:
    source = metric.get(_source(metric)) or {}
    return str(source.get("name") or (source.get("metric") or {}).get("name") or metric.get("type", ""))


def _value(value: Json, t: Catalogue) -> str:
    if value.get("averageUtilization") is not None:
        return f"{value['averageUtilization']}%"
    return str(value.get("averageValue") or value.get("value") or t("unknown"))


def _limit(status: Json, t: Catalogue) -> str:
    """Why it does not scale, or not as far as it would."""
    for condition in status.get("conditions") or ():
        kind, state = condition.get("type"), condition.get("status")
        if (kind == "ScalingLimited" and state == "True") or (
            kind in ("AbleToScale", "ScalingActive") and state == "False"
        ):
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return ""


def hpa_facts(hpa: Json, t: Catalogue) -> Markup:
    spec, status = hpa.get("spec") or {}, hpa.get("status") or {}
    conditions: list[list[Markup | str]] = [
        [
            str(condition.get("type")),
            str(condition.get("status")),
            isolated(f"{condition.get('reason', '')}: {condition.get('message', '')}"),
        ]
        for condition in status.get("conditions") or ()
    ]
    columns = [(t("Condition"), ""), (t("Status"), ""), (t("Message"), "")]
    return card(
        t("Facts"),
        tag("p", _target(spec.get("scaleTargetRef") or {}, (hpa["metadata"]).get("namespace", ""))),
        tag("p", replicas_bar(spec, status, t), class_="barline"),
        tag("ul", *(tag("li", isolated(line)) for line in metric_lines(spec, status, t))),
        table(t("Conditions"), columns, conditions, t("No condition is reported."), hidden=True),
    )


def _target(reference: Json, namespace: str) -> Markup:
    kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
    return link(f"{kind}/{name}", "workload", namespace, kind, name)


def _vpas(context: PageContext, observer: Observer) -> Markup:
    t = context.t
    if not context.rights.vpas:
        return card("VerticalPodAutoscaler", tag("p", t("Needs the right to list them."), class_="empty"))
    rows: list[list[Markup | str]] = []
    for vpa in sorted(observer.vpas.store.all(), key=_key)[:MAX_ROWS]:
        metadata, spec = vpa["metadata"], vpa.get("spec") or {}
        rows.append(
            [
                link(_key(vpa), "vpa", metadata.get("namespace", ""), metadata["name"]),
                _target(spec.get("targetRef") or {}, metadata.get("namespace", "")),
                str((spec.get("updatePolicy") or {}).get("updateMode") or "Recreate"),
                join(*(tag("div", isolated(line)) for line in recommendation_lines(vpa, t))),
            ]
        )
    columns = [("VPA", ""), (t("Target"), ""), (t("Mode"), ""), (t("Recommended (lower … upper)"), "")]
    return card("VerticalPodAutoscaler", table("VPA", columns, rows, t("There are none."), hidden=True))


def recommendation_lines(vpa: Json, t: Catalogue) -> list[str]:
    """`web: cpu 250m (100m … 1), memory 256Mi (…)`, one line a container."""
    recommendation = (vpa.get("status") or {}).get("recommendation") or {}
    lines = []
    for container in recommendation.get("containerRecommendations") or ():
        target = container.get("target") or {}
        lower, upper = container.get("lowerBound") or {}, container.get("upperBound") or {}
        amounts = ", ".join(
            f"{name} {amount} ({lower.get(name, t('unknown'))} … {upper.get(name, t('unknown'))})"
            for name, amount in target.items()
        )
        lines.append(f"{container.get('containerName', '')}: {amounts}")
    return lines or [t("unknown")]


def vpa_facts(vpa: Json, t: Catalogue) -> Markup:
    spec = vpa.get("spec") or {}
    return card(
        t("Facts"),
        tag("p", _target(spec.get("targetRef") or {}, vpa["metadata"].get("namespace", ""))),
        tag("ul", *(tag("li", isolated(line)) for line in recommendation_lines(vpa, t))),
    )


def _key(obj: Json) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
