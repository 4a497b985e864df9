"""What a running controller shows and takes: settings, metrics, events, log lines and HTTP endpoints."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import MagicMock

from dovetail.clock import Clock
from dovetail.controllers import settings
from dovetail.controllers.metrics.aws_calls import AwsMetrics
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.controllers.metrics.gauges import sheet
from scripts.reference.words import Words, code, page, table

SOURCE = Path(__file__).parents[2] / "src" / "dovetail"
#: Packages whose events and log lines a cluster shows; the lab's own programs are not among them.
PACKAGES = ("autoscalers", "cloud", "cluster", "controllers", "kube", "cli")
LEVELS = ("debug", "info", "warning", "error", "exception")
#: What ends the help of a setting: its environment variable and its default.
_BRACKETS = re.compile(r" *\[[A-Z0-9_]+(?:; (?P<default>[^\]]*))?\]$")
_FACT = re.compile(r"\{[^{}]*\}")
_REASON = re.compile(r"[A-Z][A-Za-z]+$")


def run_settings(say: Words) -> str:
    return page(
        say.either("# Settings of dovetail run", "# dovetail run의 설정"),
        say.either(
            "Every setting is a flag and an environment variable; the flag wins. Durations are written as in Go, such as "
            "`10s` or `15m`. [Running Dovetail](../running.md#settings-that-need-a-word) says more about some of them.",
            "모든 설정은 플래그이자 환경 변수이고, 플래그가 우선합니다. 기간은 `10s`나 `15m`처럼 Go의 형식으로 씁니다. "
            "일부 설정은 [Dovetail 운영](../running.md#settings-that-need-a-word)에서 더 설명합니다.",
        ),
        table(
            (
                say.either("flag", "플래그"),
                say.either("environment variable", "환경 변수"),
                say.either("default", "기본값"),
                say.either("meaning", "의미"),
            ),
            (
                (code(settings.flag(name)), code(name.upper()), code(_default(text)), _BRACKETS.sub("", say(text)))
                for name, text in settings.meanings().items()
            ),
        ),
        say.either("## Feature gates", "## 기능 게이트"),
        say.either("`--feature-gates NAME=true,NAME=false`.", "`--feature-gates NAME=true,NAME=false`."),
        table(
            (say.either("gate", "게이트"), say.either("default", "기본값")),
            ((code(name), code(str(enabled).lower())) for name, enabled in sorted(settings.GATES.items())),
        ),
    )


def _default(text: str) -> str:
    """The default of a setting, which its help ends with: `[NAME; default]`."""
    match = _BRACKETS.search(text)
    return match["default"] or "" if match else ""


class Metric(NamedTuple):
    name: str
    kind: str
    labels: str
    text: str


def metrics() -> list[Metric]:
    """All families, as a controller without any object writes them: each has its header even without rows."""
    loop = asyncio.new_event_loop()
    registered = Metrics(Clock(loop))
    AwsMetrics(registered.registry)
    text = registered.text().decode() + "".join(sheet(MagicMock()))
    loop.close()
    labels = {
        name: ", ".join(getattr(collector, "_labelnames", ()))
        for collector, names in registered.registry._collector_to_names.items()
        for name in names
    }
    kinds = dict(re.findall(r"(?m)^# TYPE (\S+) (\w+)$", text))
    helps = dict(re.findall(r"(?m)^# HELP (\S+) (.*)$", text))
    return [Metric(name, kinds[name], labels.get(name, ""), helps[name]) for name in sorted(helps)]


def metric_list(say: Words) -> str:
    return page(
        say.either("# List of metrics", "# 메트릭 목록"),
        say.either(
            "Every family of `/metrics`. [Metrics](../metrics.md) says how to read them, and which names of Karpenter have "
            "no meaning here.",
            "`/metrics`의 모든 메트릭입니다. 읽는 방법과 여기서 의미가 없는 Karpenter의 이름은 [메트릭](../metrics.md)에 있습니다.",
        ),
        table(
            (
                say.either("name", "이름"),
                say.either("type", "타입"),
                say.either("labels", "레이블"),
                say.either("meaning", "의미"),
            ),
            ((code(row.name), row.kind, code(row.labels), say(row.text)) for row in metrics()),
        ),
    )


class Event(NamedTuple):
    reason: str
    kind: str
    message: str


def events() -> list[Event]:
    """Events with a fixed reason, off the calls that publish them; `{…}` stands for a part that varies."""
    events: dict[str, Event] = {}
    for call, assigned in _calls():
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in ("publish", "_publish", "record", "event"):
            texts = [_template(argument) or _assigned(assigned, argument) for argument in call.args]
            kind = next((text for text in texts if text in ("Normal", "Warning")), "")
            reasons = [text for text in texts if text and _REASON.match(text) and text not in ("Normal", "Warning")]
            if not reasons:
                continue
            messages = [text for text in texts[texts.index(reasons[0]) + 1 :] if text]
            event = Event(reasons[0], kind, messages[0] if messages else "")
            if event.reason not in events or (event.message and not events[event.reason].message):
                events[event.reason] = event
    return [events[reason] for reason in sorted(events)]


def _calls() -> Iterator[tuple[ast.Call, list[ast.Assign]]]:
    """Every call inside a function, with the assignments of the function."""
    for _, tree in _trees():
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inside = list(ast.walk(function))
                assignments = [node for node in inside if isinstance(node, ast.Assign)]
                yield from ((node, assignments) for node in inside if isinstance(node, ast.Call))


def _assigned(assignments: list[ast.Assign], argument: ast.expr) -> str:
    """The text that a variable was given last above its use."""
    above = [
        node
        for node in assignments
        if node.lineno <= argument.lineno and ast.unparse(node.targets[0]) == ast.unparse(argument)
    ]
    return _template(max(above, key=lambda node: node.lineno).value) if above else ""


def _template(node: ast.expr) -> str:
    """A text constant, with `{…}` for what is filled in; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _FACT.sub("{…}", _template(node.func.value))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "source":
        return _template(node.args[0])
    return ""


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def event_list(say: Words) -> str:
    return page(
        say.either("# Events", "# 이벤트"),
        say.either(
            "Events of the controllers with their messages; `{…}` stands for names and values. Besides, every condition that "
            "changes on a NodeClaim, NodePool, EC2NodeClass or node is an event whose reason is the condition's type.",
            "컨트롤러의 이벤트와 메시지입니다. `{…}`는 이름과 값을 뜻합니다. 이 밖에 NodeClaim, NodePool, EC2NodeClass, 노드에서 바뀐 "
            "컨디션은 모두 컨디션 타입을 이유(reason)로 하는 이벤트가 됩니다. 이벤트는 클러스터에서 영어로 나옵니다.",
        ),
        table(
            (say.either("reason", "이유"), say.either("type", "타입"), say.either("message", "메시지")),
            ((code(event.reason), event.kind, code(event.message)) for event in events()),
        ),
    )


class LogLine(NamedTuple):
    text: str
    level: str
    module: str


def log_lines() -> list[LogLine]:
    """Log lines with a fixed message, off the calls of loggers."""
    log_lines = {}
    for path, tree in _trees():
        module = "dovetail." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in LEVELS or not call.args:
                continue
            if "log" not in ast.unparse(call.func.value).rpartition(".")[2].lower():
                continue
            if text := _template(call.args[0]):
                log_lines[text, module] = LogLine(text, call.func.attr, module)
    return [log_lines[key] for key in sorted(log_lines)]


def log_list(say: Words) -> str:
    return page(
        say.either("# Log lines", "# 로그"),
        say.either(
            "The messages of log lines, their level, and the module that writes them. A line is JSON with Karpenter's field "
            "names; what a message is about stands in further fields.",
            "로그 메시지와 수준, 그것을 쓰는 모듈입니다. 한 줄은 Karpenter와 같은 필드 이름을 쓰는 JSON이고, 메시지의 대상은 다른 필드에 있습니다. "
            "로그는 영어로 나옵니다.",
        ),
        table(
            (say.either("message", "메시지"), say.either("level", "수준"), say.either("module", "모듈")),
            ((code(line.text), line.level, code(line.module)) for line in log_lines()),
        ),
    )


class Endpoint(NamedTuple):
    method: str
    path: str
    module: str


def endpoints() -> list[Endpoint]:
    """HTTP endpoints, off the calls that add routes; the lab's API server and its AWS are not among them."""
    endpoints = set()
    for package in ("autoscalers", "cli", "controllers", "web"):
        for path in sorted((SOURCE / package).rglob("*.py")):
            module = "dovetail." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
                name = ast.unparse(call.func)
                method = {"web.get": "GET", "web.post": "POST"}.get(name)
                if name.endswith(("router.add_get", "router.add_post")):
                    method = "GET" if name.endswith("get") else "POST"
                if method and call.args and (text := _template(call.args[0])):
                    endpoints.add(Endpoint(method, text, module))
    endpoints |= {Endpoint("GET", path, "dovetail.web.server") for path in _page_paths()}
    return sorted(endpoints, key=lambda endpoint: (endpoint.module, endpoint.path, endpoint.method))


def _page_paths() -> Iterator[str]:
    """Pages of the dashboard: the keys of its table of pages, and one for each kind."""
    from dovetail.web import object_pages

    tree = ast.parse((SOURCE / "web" / "server.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant) and str(key.value).startswith("/"):
                    yield str(key.value)
    for kind, resource in object_pages.RESOURCES.items():
        yield f"/{kind}/{{namespace}}/{{name}}" if resource.namespaced else f"/{kind}/{{name}}"


#: The programs whose modules serve HTTP, and the port each listens on.
SERVERS = {
    "dovetail.controllers.health_server": ("dovetail run", "--metrics-port, --health-probe-port"),
    "dovetail.controllers.profiling": ("dovetail run --enable-profiling", "--profiling-port"),
    "dovetail.autoscalers.node_groups.program": ("dovetail cluster-autoscaler", "--address"),
    "dovetail.autoscalers.vpa.metrics": ("dovetail vpa", "--address"),
    "dovetail.autoscalers.vpa.admission_controller": ("dovetail vpa admission-controller", "--port"),
    "dovetail.cli.webhook": ("dovetail webhook", "--port"),
    "dovetail.web.server": ("dovetail dashboard", "--port"),
}


def endpoint_list(say: Words) -> str:
    rows = []
    for endpoint in endpoints():
        program, port = SERVERS[endpoint.module]
        rows.append((code(program), code(port), endpoint.method, code(endpoint.path)))
    return page(
        say.either("# HTTP endpoints", "# HTTP 엔드포인트"),
        say.either(
            "What the programs serve. The lab serves the Kubernetes API and AWS besides.",
            "프로그램들이 제공하는 엔드포인트입니다. 랩은 이 밖에 쿠버네티스 API와 AWS를 제공합니다.",
        ),
        table(
            (
                say.either("program", "프로그램"),
                say.either("port", "포트"),
                say.either("method", "메서드"),
                say.either("path", "경로"),
            ),
            rows,
        ),
    )
