"""Files and documents: scenario files, market files, the plan and the recording."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.lab.durations import Seconds
from dovetail.lab.faults.kinds import KINDS
from dovetail.lab.scenario.schema import Scenario
from scripts.reference.words import Words, code, page, table

#: The fields of `dovetail plan -o json`. A test compares them with plans.
PLAN = {
    "pods": ("every pod by namespace/name, and where it goes", "모든 파드(namespace/name)와 그 위치"),
    "pods{}.node": ("the existing node that it fits on", "들어갈 기존 노드"),
    "pods{}.machine": ("the new node, by its `id` below", "새 노드. 아래의 `id`"),
    "pods{}.relaxed[]": ("preferences that were relaxed for it", "이 파드를 위해 완화한 선호"),
    "pods{}.unschedulable.code": (
        "why it has no node: a code of the [reasons](../reasons.md)",
        "노드가 없는 까닭. [이유](../reasons.md)의 코드",
    ),
    "pods{}.unschedulable.class": (
        "who must act: `wait`, `change`, `admin`, `bug`",
        "조치할 주체: `wait`, `change`, `admin`, `bug`",
    ),
    "pods{}.unschedulable.message": ("the same in words", "같은 것을 말로"),
    "pods{}.unschedulable.remedy": ("what to do", "해결 방법"),
    "pods{}.unschedulable.object": ("what has to be changed, as kind/name", "바꿔야 할 것. kind/name"),
    "pods{}.unschedulable.pools": (
        "the funnel of each NodePool: candidates left after each filter",
        "NodePool마다 필터를 지날 때 남은 후보",
    ),
    "machines[]": ("new nodes", "새 노드"),
    "machines[].id": ("its name in this plan", "이 계획에서의 이름"),
    "machines[].pool": ("the NodePool", "NodePool"),
    "machines[].instanceType": (
        "the cheapest instance type that holds its pods",
        "파드를 담는 가장 저렴한 인스턴스 타입",
    ),
    "machines[].zone": ("its zone", "영역"),
    "machines[].capacityType": ("`on-demand`, `spot` or `reserved`", "`on-demand`, `spot`, `reserved`"),
    "machines[].price": ("dollars an hour; null where unknown", "시간당 달러. 알 수 없으면 null"),
    "machines[].priceSource": ("where the price is from", "가격의 출처"),
    "machines[].pods[]": ("its pods", "이 노드의 파드"),
    "machines[].requests": ("the sum of the requests of its pods and daemons", "파드와 데몬이 요청한 합"),
    "machines[].requirements[]": ("what its NodeClaim carries", "NodeClaim에 담기는 요구 사항"),
    "machines[].labels": ("labels beyond those of its requirements", "요구 사항 외의 레이블"),
    "machines[].offerings[]": (
        "every offering that holds its pods, cheapest first",
        "파드를 담을 수 있는 모든 제안. 저렴한 순",
    ),
    "machines[].cheaper[]": ("cheaper offerings, and why each was rejected", "더 저렴한 제안과 각각 제외된 까닭"),
    "machines[].reservationId": ("the capacity reservation", "용량 예약"),
    "machines[].minValuesRelaxed": ("whether minValues was relaxed", "minValues를 완화했는지"),
    "cost.perHour": (
        "dollars an hour of all new nodes, or of the fleet with `--consolidate`",
        "새 노드 전체의 시간당 달러. `--consolidate`이면 노드 전체",
    ),
    "cost.before": ("with `--consolidate`: before the change", "`--consolidate`일 때: 바꾸기 전"),
    "cost.after": ("with `--consolidate`: after it", "`--consolidate`일 때: 바꾼 뒤"),
    "cost.lowerBound": (
        "no plan costs less; null where none was computed",
        "어떤 계획도 이보다 저렴할 수 없음. 계산하지 않았으면 null",
    ),
    "cost.gap": ("how far the plan may be above the optimum, as a share", "계획이 최적보다 비쌀 수 있는 비율"),
    "cost.boundOf": ("the relaxation that the bound is proven for", "하한이 증명된 완화 문제"),
    "cost.forZones": ("what of the price is paid for more zones", "더 많은 영역에 두기 위해 내는 몫"),
    "cost.unpriced": ("nodes in no sum, since their price is unknown", "가격을 몰라 합에서 빠진 노드 수"),
    "took.seconds": ("how long planning took", "계획에 걸린 시간"),
    "took.tier": ("1: the quick packing; 2: improved", "1: 빠른 패킹, 2: 개선됨"),
    "remove[]": ("with `--consolidate`: nodes to remove", "`--consolidate`일 때: 제거할 노드"),
    "moves{}.from": ("with `--consolidate`: the node that a pod leaves", "`--consolidate`일 때: 파드가 떠나는 노드"),
    "moves{}.node": ("the existing node that it goes to", "파드가 가는 기존 노드"),
    "moves{}.machine": ("or the new one", "또는 새 노드"),
    "evictions": ("with `--consolidate`: pods that move", "`--consolidate`일 때: 옮기는 파드 수"),
    "stays{}": ("with `--consolidate`: why each other node stays", "`--consolidate`일 때: 다른 노드가 각각 남는 까닭"),
}


def plan_format(say: Words) -> str:
    index = 0 if say.language == "en" else 1
    return page(
        say.either("# Plan format", "# 계획 형식"),
        say.either(
            "What `dovetail plan -o json` and `-o yaml` print. Fields that say nothing are left out; fields are added, not "
            "renamed or removed. `[]` stands for an item of a list, `{}` for a value of a map.",
            "`dovetail plan -o json`과 `-o yaml`이 출력하는 내용입니다. 말할 것이 없는 필드는 빠지고, 필드는 추가될 뿐 이름이 바뀌거나 없어지지 "
            "않습니다. `[]`는 목록의 항목, `{}`는 맵의 값을 뜻합니다.",
        ),
        table(
            (say.either("field", "필드"), say.either("meaning", "의미")),
            ((code(path), texts[index]) for path, texts in PLAN.items()),
        ),
    )


def scenario_format(say: Words) -> str:
    return page(
        say.either("# Scenario and market files", "# 시나리오와 시장 파일"),
        say.either(
            "Every field of a file for `dovetail simulate`, from its schema. Durations are written as `90s`, `5m`, `2h30m` or "
            "`1d`. [Scenarios](../scenarios.md) shows files and says what is checked.",
            "`dovetail simulate`가 읽는 파일의 모든 필드를 스키마에서 생성했습니다. 기간은 `90s`, `5m`, `2h30m`, `1d`처럼 씁니다. "
            "예제 파일과 검사하는 내용은 [시나리오](../scenarios.md)에 있습니다.",
        ),
        *_structs(say, Scenario, set()),
        say.either("## Faults", "## 장애"),
        say.either("Kinds of a `fault` step and of `dovetail fault`:", "`fault` 단계와 `dovetail fault`의 종류:"),
        ", ".join(code(kind) for kind in KINDS),
        say.either("# Market file", "# 시장 파일"),
        say.either(
            "`dovetail run --cloud simulated --market FILE`, and `market` of a scenario.",
            "`dovetail run --cloud simulated --market FILE`, 그리고 시나리오의 `market`.",
        ),
        *_structs(say, SimulatedMarket, set()),
    )


def _structs(say: Words, struct: type[msgspec.Struct], seen: set[type]) -> Iterator[str]:
    """A section for a struct and for each one below it."""
    seen.add(struct)
    yield f"## {struct.__name__}"
    yield say(" ".join(inspect.cleandoc(struct.__doc__ or "").split()))
    hints = get_type_hints(struct)
    fields = msgspec.structs.fields(struct)
    yield table(
        (say.either("field", "필드"), say.either("type", "타입"), say.either("default", "기본값")),
        ((code(field.encode_name), code(_name(hints[field.name])), _default(say, field)) for field in fields),
    )
    for field in fields:
        for inner in _inner(hints[field.name]):
            if inner not in seen:
                yield from _structs(say, inner, seen)


def _inner(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for argument in get_args(hint):
        yield from _inner(argument)


def _name(hint: Any) -> str:
    if hint is Seconds:
        return "duration"
    if hint is type(None):
        return "null"
    arguments = [_name(argument) for argument in get_args(hint) if argument not in (type(None), ...)]
    origin = getattr(hint, "__origin__", None)
    if origin in (tuple, list):
        return f"[]{arguments[0]}" if len(set(arguments)) == 1 else f"[{', '.join(arguments)}]"
    if origin is dict or hint is dict:
        return f"map of {arguments[-1]}" if arguments else "object"
    if arguments and origin is None:
        return " or ".join(arguments)
    named = getattr(hint, "__name__", str(hint))
    return {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "Any": "any"}.get(named, named)


def _default(say: Words, field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return say.either("required", "필수")
    if field.default_factory is not msgspec.NODEFAULT:
        value: Any = field.default_factory()
    else:
        value = field.default
    if value in (None, "", (), {}, []) or isinstance(value, msgspec.Struct) or hasattr(value, "isoformat"):
        return ""
    if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        return ""
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(
        ", ".join(str(inner) for inner in value)
        if isinstance(value, (tuple, list))
        else f"{value:g}"
        if isinstance(value, float)
        else value
    )
