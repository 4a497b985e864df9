"""HPAs and VPAs: their targets beside what is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from dovetail.model.pods import Pod
from dovetail.model.quantity import QuantityError, amount, resources
from dovetail.view.model import Amounts
from dovetail.view.observer import ContainerUsage, Observer
from dovetail.view.scaling import metric_name, number, source_of
from dovetail.web import figures
from dovetail.web.context import PageContext
from dovetail.web.layout import card, definition_list, table
from dovetail.web.markup import Markup, isolated, join, link, path, tag
from dovetail.web.page_language import PageLanguage

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
                metric_bars(spec, status, t),
                isolated(_limit(status, t)),
            ]
        )
    columns = [
        ("HPA", "key"),
        (t("Target"), "key"),
        (t("Replicas"), ""),
        (t("Metrics: used / target"), ""),
        (t("Limited"), "long"),
    ]
    return card("HorizontalPodAutoscaler", table("HPA", columns, rows, t("There are none."), hidden=True))


def replicas_bar(spec: Json, status: Json, t: PageLanguage) -> Markup:
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
    going = f"{now} → {desired}" if desired not in (None, now) else f"{now}"
    text = t("{now} ({least} to {most} allowed)", now=going, least=least, most=most)
    return tag("span", drawn, text, class_="barline")


def metric_lines(spec: Json, status: Json, t: PageLanguage) -> list[str]:
    """`cpu 63% / 70%`, one line a metric; what has not been measured is unknown."""
    current = {
        metric_name(current_metric): current_metric
        for current_metric in status.get("currentMetrics") or ()
        if current_metric
    }
    lines = []
    for metric in spec.get("metrics") or ():
        name = metric_name(metric)
        target = source_of(metric).get("target") or {}
        value = source_of(current.get(name) or {}).get("current") or {}
        lines.append(f"{name} {_value(value, t)} / {_value(target, t)}")
    return lines


def metric_bars(spec: Json, status: Json, t: PageLanguage) -> Markup:
    """Every metric with a bar: the line in the middle is the target, and what is used is filled up to twice that."""
    lines = metric_lines(spec, status, t)
    measured = {metric_name(metric): source_of(metric).get("current") or {} for metric in _current(status)}
    bars = []
    for metric in spec.get("metrics") or ():
        used = number(measured.get(metric_name(metric)) or {})
        target = number(source_of(metric).get("target") or {})
        bars.append(_against(used, target) if used is not None and target else None)
    return join(*(tag("div", bar, isolated(line), class_="barline") for bar, line in zip(bars, lines, strict=True)))


def _current(status: Json) -> list[Json]:
    return [metric for metric in status.get("currentMetrics") or () if metric]


def _against(used: float, target: float) -> Markup:
    width = 50 * max(0.0, min(2.0, used / target))
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bg" width="100" height="8"/><rect class="{"over" if used > target else "fg"}"'
        f' width="{width:.1f}" height="8"/><path class="use" d="M50 0v8"/></svg>'
    )


def _value(value: Json, t: PageLanguage) -> str:
    if value.get("averageUtilization") is not None:
        return f"{value['averageUtilization']}%"
    return str(value.get("averageValue") or value.get("value") or t("unknown"))


def _limit(status: Json, t: PageLanguage) -> str:
    """Why it does not scale, or not as far as it would."""
    for condition in status.get("conditions") or ():
        kind, state = condition.get("type"), condition.get("status")
        if (kind == "ScalingLimited" and state == "True") or (
            kind in ("AbleToScale", "ScalingActive") and state == "False"
        ):
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return ""


def hpa_facts(hpa: Json, t: PageLanguage) -> Markup:
    spec, status = hpa.get("spec") or {}, hpa.get("status") or {}
    conditions: list[list[Markup | str]] = [
        [
            str(condition.get("type")),
            str(condition.get("status")),
            isolated(f"{condition.get('reason', '')}: {condition.get('message', '')}"),
        ]
        for condition in status.get("conditions") or ()
    ]
    columns = [(t("Condition"), ""), (t("Status"), ""), (t("Message"), "long")]
    facts: list[tuple[str, Markup | str]] = [
        (t("Target"), _target(spec.get("scaleTargetRef") or {}, (hpa["metadata"]).get("namespace", ""))),
        (t("Replicas"), replicas_bar(spec, status, t)),
        (t("Metrics: used / target"), metric_bars(spec, status, t)),
    ]
    return card(
        t("Facts"),
        definition_list(facts),
        table(t("Conditions"), columns, conditions, t("No condition is reported."), hidden=True),
    )


def hpa_plots(hpa: Json, t: PageLanguage) -> Markup:
    """The frames for replicas and metrics over time: what is, and dashed what is wanted."""
    metadata, spec = hpa["metadata"], hpa.get("spec") or {}
    names: list[tuple[str, str, str, str | None]] = [(t("Replicas: now / desired"), "replicas", "desired", "1")]
    for place, metric in enumerate(spec.get("metrics") or ()):
        label = t("{metric}: used / target", metric=metric_name(metric))
        names.append((label, f"used{place}", f"target{place}", None))
    frames = [
        tag(
            "figure",
            tag("figcaption", isolated(label)),
            tag("div", class_="plot", data_plot=plot, data_against=against, data_label=label, data_whole=whole),
            class_="card",
        )
        for label, plot, against, whole in names
    ]
    hint = t("Since this page's server started; dashed is what is wanted. Times are UTC.")
    data = path("data", "hpa", metadata.get("namespace", ""), metadata["name"])
    return join(
        tag("div", hint, id="hover", aria_live="polite", class_="hover", data_hint=hint),
        tag("div", *frames, id="plots", data_chart=data, role="group", aria_label=t("Time")),
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
                _mode(spec),
                join(*(tag("div", isolated(line)) for line in recommendation_lines(vpa, t))),
            ]
        )
    columns = [("VPA", "key"), (t("Target"), "key"), (t("Mode"), ""), (t("Recommended (lower … upper)"), "long")]
    return card("VerticalPodAutoscaler", table("VPA", columns, rows, t("There are none."), hidden=True))


def _mode(spec: Json) -> str:
    return str((spec.get("updatePolicy") or {}).get("updateMode") or "Recreate")


def recommendation_lines(vpa: Json, t: PageLanguage) -> list[str]:
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
    return lines or [t("no recommendation yet")]


def vpa_facts(
    vpa: Json, requests: Mapping[str, ContainerUsage], used: Mapping[str, ContainerUsage] | None, t: PageLanguage
) -> Markup:
    """`requests` and `used` are those of its pods, by the pod and the container."""
    spec, status = vpa.get("spec") or {}, vpa.get("status") or {}
    containers = (status.get("recommendation") or {}).get("containerRecommendations") or ()
    rows: list[list[Markup | str]] = []
    for container in containers:
        name = str(container.get("containerName", ""))
        for resource in container.get("target") or {}:
            rows.append(_recommended(container, name, resource, requests, used, t))
    columns = [
        (t("Container"), ""),
        (t("Resource"), ""),
        (t("Requested"), "num"),
        (t("Used (mean)"), "num"),
        (t("Used (most)"), "num"),
        (t("Lower"), "num"),
        (t("Target"), "num"),
        (t("Upper"), "num"),
        ("", ""),
    ]
    said = t("Band: lower to upper recommendation; thick line: target; thin line: the most that a pod uses.")
    facts: list[tuple[str, Markup | str]] = [
        (t("Target"), _target(spec.get("targetRef") or {}, vpa["metadata"].get("namespace", ""))),
        (t("Mode"), _mode(spec)),
    ]
    return card(
        t("Facts"),
        definition_list(facts),
        table(t("Recommended"), columns, rows, t("No recommendation is known."), hidden=True),
        tag("p", said, class_="empty") if rows else None,
    )


def _recommended(
    container: Json,
    name: str,
    resource: str,
    requests: Mapping[str, ContainerUsage],
    used: Mapping[str, ContainerUsage] | None,
    t: PageLanguage,
) -> list[Markup | str]:
    requested = _amounts_of(requests, requests, name, resource)
    measured = _amounts_of(used or {}, requests, name, resource)
    lower, target, upper = (_amount(container, part, resource) for part in ("lowerBound", "target", "upperBound"))
    mean = round(sum(measured) / len(measured)) if measured else None
    most = max(measured, default=None)
    return [
        isolated(name),
        isolated(resource),
        t("none") if requests and not requested else figures.amount(resource, max(requested, default=None), t),
        figures.amount(resource, mean, t),
        figures.amount(resource, most, t),
        figures.amount(resource, lower, t),
        figures.amount(resource, target, t),
        figures.amount(resource, upper, t),
        _band(lower, target, upper, most),
    ]


def _amounts_of(
    amounts: Mapping[str, ContainerUsage], pods: Mapping[str, ContainerUsage], container: str, resource: str
) -> list[int]:
    """The amounts of one container in the pods that are the VPA's; what a pod does not say is left out."""
    said = (amounts.get(pod, {}).get(container, {}).get(resource) for pod in pods)
    return [count for count in said if count is not None]


def _amount(container: Json, part: str, resource: str) -> int | None:
    given = (container.get(part) or {}).get(resource)
    try:
        return amount(resource, str(given)) if given is not None else None
    except QuantityError:
        return None


def _band(lower: int | None, target: int | None, upper: int | None, used: int | None) -> Markup | str:
    """Drawn to twice the target: upper bounds are a hundred times as high while there are few samples."""
    if not target:
        return ""
    scale = 50 / target
    left = scale * (lower or 0)
    right = min(100.0, scale * upper) if upper is not None else 100.0
    line = f'<path class="use" d="M{min(100.0, scale * used):.1f} 0v8"/>' if used is not None else ""
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bg" width="100" height="8"/><rect class="c4" x="{left:.1f}" width="{max(0.0, right - left):.1f}"'
        f' height="8"/><path class="target" d="M50 0v8"/>{line}</svg>'
    )


def container_requests(pods: Iterable[Pod]) -> dict[str, ContainerUsage]:
    """What the containers of pods request, by the pod and the container."""
    requests: dict[str, ContainerUsage] = {}
    for pod in pods:
        named: dict[str, Amounts] = {}
        for container in pod.spec.containers:
            with suppress(QuantityError):
                named[container.name] = resources(container.resources.requests)
        requests[pod.metadata.name] = named
    return requests


def _key(obj: Json) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
