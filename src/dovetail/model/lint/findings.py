"""What lint can find: a closed list of codes, and the form of a finding."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Code(msgspec.Struct, frozen=True):
    """`title` is for the manual; a finding says it with names and values."""

    code: str
    severity: Severity
    title: str
    why: str


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

CODES: dict[str, Code] = {
    row.code: row
    for row in (
        Code("DV001", _E, "not YAML", "Nothing can be read from here on."),
        Code("DV002", _E, "a key given twice", "The last one wins silently; the API server refuses it when strict."),
        Code("DV003", _E, "no such version of the kind", "The API server does not know the pair."),
        Code("DV004", _E, "not a manifest", "Kubernetes takes objects with apiVersion and kind, without tags."),
        Code("DV101", _E, "unknown field", "kubectl refuses it; an API server that is not strict drops it silently."),
        Code("DV102", _E, "field in the wrong place", "The field exists, elsewhere."),
        Code("DV103", _E, "value of the wrong form", "The API server refuses it."),
        Code("DV104", _E, "not an instance type", "Nothing is ever launched for such a requirement."),
        Code("DV105", _E, "value that no node has", "No instance type of the region has the value."),
        Code("DV106", _E, "rule of the kind broken", "The API server refuses it."),
        Code(
            "DV107", _E, "refused by the controller", "The API server lets it pass, and the pool never becomes ready."
        ),
        Code("DV108", _E, "requirements that contradict", "No node meets both."),
        Code("DV109", _W, "label key that looks misspelt", "It is taken for a label of your own, which no node has."),
        Code("DV110", _W, "value that no node has, among others", "It does nothing; the others still count."),
        Code("DV201", _E, "no node meets the requirements", "The pool can launch nothing in the region."),
        Code("DV202", _W, "limits below one node", "The pool can launch nothing, or next to nothing."),
        Code("DV203", _W, "budget that never opens", "Nodes are never consolidated nor replaced when they drift."),
        Code(
            "DV204",
            _W,
            "expiry without budgets",
            "Expiry is forceful in v1: nodes launched together go together, whatever else runs.",
        ),
        Code("DV205", _W, "deprecated", "It works; there is a better way to say it."),
        Code("DV206", _W, "variable left unexpanded", "A placeholder reaches AWS as it stands and matches nothing."),
        Code("DV207", _I, "spot with few choices", "Few instance types mean few spare nodes, and interruptions."),
        Code("DV208", _W, "setting that has no effect", "The family of the class's images does not heed it."),
        Code("DV301", _E, "names that collide", "Two objects of different generations are one in v1."),
        Code("DV302", _W, "node class that is not there", "The pool stays not ready until the class exists."),
        Code("DV303", _W, "overlapping pools", "Which of them gets a pod is decided by name, not by you."),
        Code("DV304", _I, "node class that is not used", "No pool of these files refers to it."),
        Code("DV305", _W, "HPA and VPA on one resource", "More use raises the requests, and the HPA removes replicas."),
        Code("DV401", _E, "selector that selects nothing", "AWS has nothing of the kind with these tags."),
        Code("DV402", _E, "name that AWS does not know", "No role, instance profile or image has this name."),
    )
}


class Edit(msgspec.Struct, frozen=True):
    """A replacement in the text, safe to make without asking."""

    start: int
    end: int
    text: str


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake: object, field, value, way out."""

    code: str
    message: str
    file: str
    line: int
    column: int
    subject: str = ""  # NodePool "default"
    path: str = ""
    hint: str = ""
    edit: Edit | None = None

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    @property
    def fixable(self) -> bool:
        return self.edit is not None
