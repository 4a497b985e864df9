"""The report as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.language import message
from dovetail.offline.diff.limits import Limit
from dovetail.offline.diff.prediction import PredictedState, Prediction
from dovetail.offline.diff.report_text import HOURS_A_MONTH, as_text, changed_objects, conclusion

#: So many objects are listed before the details.
MAX_OBJECTS = 10


def as_markdown(prediction: Prediction, exceeded: Sequence[Limit] = (), *, verbose: bool = False) -> str:
    """A headline, a table of cost, and the whole report folded away."""
    if not prediction.changed:
        return f"### dovetail diff\n\n{as_text(prediction)}\n"
    lines = ["### dovetail diff", "", f"**{conclusion(prediction)}**", ""]
    if exceeded:
        limits = ", ".join(f"`{limit.text}`" for limit in exceeded)
        lines += [message("⛔ Limits exceeded: {limits}", limits=limits), ""]
    objects = [*changed_objects(prediction.applied.objects), *(f"~ {text}" for text in prediction.market)]
    lines += [f"- `{_code(text)}`" for text in objects[:MAX_OBJECTS]]
    if len(objects) > MAX_OBJECTS:
        lines.append("- " + message("and {n} more", n=len(objects) - MAX_OBJECTS))
    lines += ["", *_costs(prediction), ""]
    pending = prediction.applied.pending
    if pending:
        lines += [
            message(
                "⚠️ {n} pods have no node once the cluster is at rest: {codes}",
                n=sum(group.count for group in pending),
                codes=", ".join(sorted({f"`{group.code}`" for group in pending})),
            ),
            "",
        ]
    details = as_text(prediction, verbose=verbose)
    lines += ["<details><summary>" + message("Nodes, evictions and budgets") + "</summary>", "", "```diff"]
    lines += list(_as_diff(details.splitlines()))
    lines += ["```", "", "</details>", ""]
    return "\n".join(lines)


def _code(text: str) -> str:
    return text.replace("`", "'")


def _costs(prediction: Prediction) -> list[str]:
    heads = (
        message("cluster"),
        message("$/hour"),
        message("$/month"),
        message("lower bound"),
        message("nodes"),
        message("pending"),
    )
    rows = [
        heads,
        ("---", "--:", "--:", "--:", "--:", "--:"),
        _row(message("now"), prediction.now),
        _row(message("at rest without the change"), prediction.without.end),
        _row(message("at rest with the change"), prediction.applied.end),
    ]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _row(name: str, state: PredictedState) -> tuple[str, ...]:
    return (
        name,
        f"{state.per_hour:.4f}",
        f"{state.per_hour * HOURS_A_MONTH:.2f}",
        f"{state.lower_bound:.4f}",
        str(state.nodes),
        str(state.pending),
    )


def _as_diff(lines: Iterable[str]) -> Iterable[str]:
    """Signs at the beginning of a line, where a highlighter of diffs looks; `~` is shown as `!`."""
    for line in lines:
        sign = line.lstrip()[:2]
        if line.startswith("  ") and sign in ("+ ", "- ", "~ ", "! "):
            rest = line.replace(sign[0], " ", 1)
            yield ("!" if sign[0] in "~!" else sign[0]) + rest[1:]
        else:
            yield line.replace("```", "'''")
