"""The report for people: `+` what comes, `~` what changes, `-` what goes, in the order of `terraform plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dovetail.language import message, plural
from dovetail.language.columns import table
from dovetail.language.recognition import recognized
from dovetail.offline.diff.prediction import (
    Pending,
    PredictedNodeChange,
    PredictedObjectChange,
    PredictedRun,
    PredictedState,
    Prediction,
    Wave,
    lasting,
    replaced_nodes,
    summary,
)

HOURS_A_MONTH = 730
#: So many lines of each part are shown without --verbose.
MAX_LINES = 20


def as_text(prediction: Prediction, *, verbose: bool = False) -> str:
    """The whole report."""
    most = 10**9 if verbose else MAX_LINES
    parts = [
        _objects(prediction, most),
        _pools(prediction),
        _nodes(prediction.applied, most),
        _waves(prediction.applied, most),
        _pending(prediction, most),
        _blocked(prediction.applied, most),
        _cost(prediction),
        [*_notes(prediction), conclusion(prediction)],
    ]
    if not prediction.changed:
        parts = [[message("No changes: the cluster is what the manifests say, and it stays as it is.")]]
        parts += [[message("note: {note}", note=note) for note in prediction.notes]] if prediction.notes else []
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


# -- parts


def _objects(prediction: Prediction, most: int) -> list[str]:
    changes = prediction.applied.objects
    if not changes and not prediction.market:
        return []
    lines = [message("Changes")]
    for change in changes[:most]:
        lines.append(f"  {change.action} {change.object}")
        lines += [f"      {path}: {_from_to(old, new)}" for path, old, new in change.fields]
    lines += _more(len(changes) - most)
    lines += [f"  ~ {text}" for text in prediction.market]
    return lines


def _from_to(old: str, new: str) -> str:
    if not old:
        return f"+ {new}"
    return f"{old} → {new}" if new else f"- {old}"


def _pools(prediction: Prediction) -> list[str]:
    before, after = prediction.without.end.by_pool, prediction.applied.end.by_pool
    rows = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, (0, 0.0)), after.get(name, (0, 0.0))
        if old == new and not any(change.pool == name for change in prediction.applied.nodes):
            continue
        sign = "+" if name not in before else "-" if name not in after else "~"
        if old[0] == new[0]:
            nodes = plural("{n} node", "{n} nodes", n=new[0])
        else:
            nodes = message("{before} → {after} nodes", before=old[0], after=new[0])
        rows.append((f"  {sign} NodePool {name}", nodes, _dollars(old[1], new[1])))
    return [message("NodePools"), *table(rows)] if rows else []


def _dollars(old: float, new: float) -> str:
    return f"${old:.4f}/h" if abs(old - new) < 1e-9 else f"${old:.4f}/h → ${new:.4f}/h"


def _nodes(outcome: PredictedRun, most: int) -> list[str]:
    added, removed, passing = lasting(outcome)
    replaced = replaced_nodes(outcome)
    rows: list[tuple[str, ...]] = []
    groups = Counter((_offering(change), change.reason) for change in added)
    prices = {_offering(change): change.price for change in added}
    for (offering, why), count in sorted(groups.items()):
        rows.append(
            ("  +", f"{count} x {offering[1]}", *offering[2:], offering[0], _price(prices[offering]), _launched(why))
        )
    for change in removed:
        sign = "  ~" if change.node in replaced else "  -"
        name = f"{change.node or change.claim} ({change.instance_type})"
        rows.append(
            (
                sign,
                name,
                change.zone,
                change.capacity_type,
                change.pool,
                _price(change.price),
                _why(change.reason, change.detail),
            )
        )
    if not rows and not passing:
        return []
    lines = [message("Nodes (+ launched, ~ replaced, - removed)"), *table(rows[:most]), *_more(len(rows) - most)]
    if passing:
        lines.append(
            plural(
                "  and {n} node that is launched and removed again before the cluster is at rest",
                "  and {n} nodes that are launched and removed again before the cluster is at rest",
                n=passing,
            )
        )
    return lines


def _offering(change: PredictedNodeChange) -> tuple[str, str, str, str]:
    return change.pool, change.instance_type, change.zone, change.capacity_type


def _price(price: float | None) -> str:
    return message("price unknown") if price is None else f"${price:.4f}/h"


def _launched(reason: str) -> str:
    return _why(reason) if reason == "Provisioned" else message("replacement ({why})", why=_why(reason))


def _why(reason: str, detail: str = "") -> str:
    words = {
        "Provisioned": message("for pods without a node"),
        "Drifted": message("drift"),
        "Empty": message("empty"),
        "Underutilized": message("consolidation"),
        "Expired": message("expiration"),
        "Unhealthy": message("repair"),
        "expired": message("expiration"),
        "node_deleted": message("its Node was deleted"),
        "nodeclaim_deleted": message("its NodeClaim was deleted"),
        "instance_terminated": message("its instance is gone"),
        "static_scale_down": message("fewer replicas"),
        "": message("its instance is gone"),
    }
    text = words.get(reason, reason)
    return f"{text} ({detail})" if detail and detail != reason else text


def _waves(outcome: PredictedRun, most: int) -> list[str]:
    rows = []
    for wave in outcome.waves[:most]:
        replacements = plural("{n} replacement", "{n} replacements", n=wave.replacements)
        rows.append(
            (
                f"  {duration(wave.at)}",
                _why(wave.reason, wave.detail),
                plural("{n} node", "{n} nodes", n=len(wave.nodes)),
                replacements,
                plural("{n} eviction", "{n} evictions", n=wave.evictions),
                _named(wave),
                "; ".join(map(recognized, wave.budgets)) or message("no budget"),
            )
        )
    if not rows:
        return []
    return [message("Disruption, in order (time after the change)"), *table(rows), *_more(len(outcome.waves) - most)]


def _named(wave: Wave) -> str:
    first = wave.nodes[0] if wave.nodes else ""
    return message("{first} and {n} more", first=first, n=len(wave.nodes) - 1) if len(wave.nodes) > 1 else first


def _pending(prediction: Prediction, most: int) -> list[str]:
    pending = prediction.applied.pending
    if not pending:
        return []
    before = {pod for group in prediction.without.pending for pod in group.pods}
    lines = [message("Pods without a node once the cluster is at rest")]
    for group in pending[:most]:
        lines.append(f"  ! {_group(group, before)}: {recognized(group.message)} [{group.code}]")
        if group.remedy and group.remedy not in group.message:
            lines.append(f"      {recognized(group.remedy)}")
    return lines + _more(len(pending) - most)


def _group(group: Pending, before: set[str]) -> str:
    first = group.pods[0] if group.pods else ""
    text = message("{first} and {n} more", first=first, n=group.count - 1) if group.count > 1 else first
    if group.pods and all(pod in before for pod in group.pods):
        return message("{pods} (without the change as well)", pods=text)
    return text


def _blocked(outcome: PredictedRun, most: int) -> list[str]:
    if not outcome.blocked:
        return []
    lines = [message("Nodes that should go and are held")]
    for node in outcome.blocked[:most]:
        lines.append(f"  ! {node.node} ({node.pool}), {_why(node.reason)}")
        lines += [f"      {recognized(text)}" for text in node.blockers[:most]]
    return lines + _more(len(outcome.blocked) - most)


def _cost(prediction: Prediction) -> list[str]:
    now, before, after = prediction.now, prediction.without.end, prediction.applied.end
    rows = [
        (
            message("Cost"),
            message("$/hour"),
            message("$/month"),
            message("lower bound"),
            message("nodes"),
            message("pods"),
            message("pending"),
        ),
        _cost_row(message("  now"), now),
    ]
    if before != now:
        rows.append(_cost_row(message("  at rest without the change"), before))
    rows.append(_cost_row(message("  at rest with the change"), after))
    lines = list(table(rows))
    unpriced = max(now.unpriced, after.unpriced)
    if unpriced:
        lines.append(
            plural(
                "  {n} node has no known price and is not counted",
                "  {n} nodes have no known price and are not counted",
                n=unpriced,
            )
        )
    if after.other_nodes:
        lines.append(
            plural(
                "  {n} node of no NodePool stays as it is and is not counted",
                "  {n} nodes of no NodePool stay as they are and are not counted",
                n=after.other_nodes,
            )
        )
    return lines


def _cost_row(name: str, state: PredictedState) -> tuple[str, ...]:
    return (
        name,
        f"{state.per_hour:.4f}",
        f"{state.per_hour * HOURS_A_MONTH:.2f}",
        f"{state.lower_bound:.4f}",
        str(state.nodes),
        str(state.pods),
        str(state.pending),
    )


def _notes(prediction: Prediction) -> Iterator[str]:
    for note in prediction.notes:
        yield message("note: {note}", note=note)
    if not prediction.applied.at_rest:
        yield message(
            "note: the cluster is not at rest after {horizon}; --horizon looks further",
            horizon=duration(prediction.horizon_s),
        )
    anyway = len(prediction.without.waves)
    if anyway:
        yield plural(
            "note: {n} disruption happens without the change as well",
            "note: {n} disruptions happen without the change as well",
            n=anyway,
        )


def conclusion(prediction: Prediction) -> str:
    """The last line: all of it in one sentence."""
    counts = summary(prediction)
    share = f" ({counts.cost_change:+.1%})" if counts.cost_change is not None else ""
    return message(
        "Plan: {added} to add, {replaced} to replace, {removed} to remove; {evictions}; "
        "{dollars}/month{share}; at rest after {time}.",
        added=plural("{n} node", "{n} nodes", n=counts.added),
        replaced=counts.replaced,
        removed=counts.removed,
        evictions=plural("{n} eviction", "{n} evictions", n=counts.evictions),
        dollars=_signed((counts.dollars_per_hour - counts.dollars_per_hour_without) * HOURS_A_MONTH),
        share=share,
        time=duration(counts.seconds),
    )


def _signed(dollars: float) -> str:
    return f"{'-' if dollars < 0 else '+'}${abs(dollars):.2f}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def _more(count: int) -> list[str]:
    return [message("  … and {n} more; --verbose shows all", n=count)] if count > 0 else []


def changed_objects(changes: Sequence[PredictedObjectChange]) -> list[str]:
    """Each object in one line."""
    lines = []
    for change in changes:
        fields = "; ".join(f"{path}: {_from_to(old, new)}" for path, old, new in change.fields)
        lines.append(f"{change.action} {change.object}" + (f" ({fields})" if fields else ""))
    return lines
