"""Expressions of webhooks and admission policies, checked before any request exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.lab.apiserver.crd import cel_typecheck
from dovetail.lab.apiserver.crd.cel.errors import CelSyntaxError
from dovetail.lab.apiserver.crd.cel.parser import Node, parse
from dovetail.lab.apiserver.crd.cel.types import (
    AUTHORIZER,
    BOOL,
    NULL,
    RESOURCE_CHECK,
    STRING,
    CelType,
    fits,
    list_of,
    shown,
)
from dovetail.lab.apiserver.crd.cel_typecheck import FieldKinds
from dovetail.lab.apiserver.crd.structural import Structural

OBJECT, PATCHES = CelType("Object"), list_of(CelType("JSONPatch"))
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


_KIND = _object(group=_TEXT, version=_TEXT, kind=_TEXT)
_RESOURCE = _object(group=_TEXT, version=_TEXT, resource=_TEXT)
_USER = _object(
    username=_TEXT,
    uid=_TEXT,
    groups=_TEXTS,
    extra={"type": "object", "additionalProperties": _TEXTS},
)
_REQUEST = Structural(
    _object(
        kind=_KIND,
        resource=_RESOURCE,
        subResource=_TEXT,
        requestKind=_KIND,
        requestResource=_RESOURCE,
        requestSubResource=_TEXT,
        name=_TEXT,
        namespace=_TEXT,
        operation=_TEXT,
        userInfo=_USER,
        dryRun={"type": "boolean"},
        options={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
)
_TIME = {"type": "string", "format": "date-time"}
_LABELS = {"type": "object", "additionalProperties": _TEXT}
_NAMESPACE = Structural(
    _object(
        metadata=_object(
            name=_TEXT,
            generateName=_TEXT,
            namespace=_TEXT,
            labels=_LABELS,
            annotations=_LABELS,
            UID=_TEXT,
            creationTimestamp=_TIME,
            deletionGracePeriodSeconds={"type": "integer"},
            deletionTimestamp=_TIME,
            generation={"type": "integer"},
            resourceVersion=_TEXT,
            finalizers=_TEXTS,
        ),
        spec=_object(finalizers=_TEXTS),
        status=_object(
            conditions={
                "type": "array",
                "items": _object(status=_TEXT, type=_TEXT, lastTransitionTime=_TIME, message=_TEXT, reason=_TEXT),
            },
            phase=_TEXT,
        ),
    )
)
_DYNAMIC = frozenset(("object", "oldObject", "params"))


class Declarations:
    """The variables that an expression may use."""

    def __init__(self, *, params: bool = False, authorizer: bool = True) -> None:
        self.kinds: dict[str, CelType | None] = {
            "object": None,
            "oldObject": None,
            "request": cel_typecheck.kind_of(_REQUEST),
            "namespaceObject": cel_typecheck.kind_of(_NAMESPACE),
        }
        if params:
            self.kinds["params"] = None
        if authorizer:
            fields = FieldKinds({"requestResource": RESOURCE_CHECK})
            self.kinds["authorizer"] = CelType(AUTHORIZER.name, schema=fields)

    def composed(self, variables: Mapping[str, CelType | None]) -> Declarations:
        """The same with a policy's own variables."""
        return self._with("variables", CelType("kubernetes.variables", schema=FieldKinds(variables)))

    def with_patches(self) -> Declarations:
        """The same with what mutations are made of: `Object{…}` and `JSONPatch{…}`."""
        return self._with("jsonpatch", None)._with("Object", None)._with("JSONPatch", None)

    def without(self, name: str) -> Declarations:
        made = Declarations()
        made.kinds = {key: kind for key, kind in self.kinds.items() if key != name}
        return made

    def _with(self, name: str, kind: CelType | None) -> Declarations:
        made = Declarations()
        made.kinds = {**self.kinds, name: kind}
        return made


def complaint(expression: str, accepted_types: Sequence[CelType], declared: Declarations) -> str:
    """What is wrong with an expression; "" if nothing. Without `accepted_types`, any is."""
    try:
        node = parse(expression)
        kind = cel_typecheck.walk(node, declared.kinds)
    except CelSyntaxError as error:
        return f"compilation failed: {error.located(expression)}"
    if not accepted_types or (kind is not None and any(fits(kind, wanted_kind) for wanted_kind in accepted_types)):
        return ""
    if kind is None and not _is_dynamic(node):
        return ""
    if len(accepted_types) == 1:
        return f"must evaluate to {shown(accepted_types[0])} but got {_shown(kind)}"
    accepted = " ".join(map(_shown, accepted_types))
    return f"must evaluate to one of [{accepted}] but got {_shown(kind)}"


def kind_of_expression(expression: str, declared: Declarations) -> CelType | None:
    """The kind of a variable's value; unknown where its expression is wrong."""
    try:
        return cel_typecheck.walk(parse(expression), declared.kinds)
    except CelSyntaxError:
        return None


def _shown(kind: CelType | None) -> str:
    return "null_type" if kind == NULL else shown(kind)


def _is_dynamic(node: Node) -> bool:
    """Whether a value comes straight from an object, whose fields are of no declared kind."""
    if node[0] in ("select", "index"):
        return _is_dynamic(node[1])
    return node[0] == "name" and node[1] in _DYNAMIC


__all__ = ["BOOL", "NULL", "OBJECT", "PATCHES", "STRING", "Declarations", "complaint", "kind_of_expression"]
