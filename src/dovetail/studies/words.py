"""Findings and page texts in English and Korean. Every sentence carries the figures it rests on.

Korean sentences put names before a colon, so that no particle depends on how a name ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.studies.findings import Side, StudyFinding
from dovetail.studies.setups import TITLES, Setup
from dovetail.studies.summary import Figure, Row

LANGUAGES = ("en", "ko")


def number(figure: Figure, form: str, unit: str = "", scale: float = 1.0) -> str:
    """A figure with its unit, and with the spread where there are several seeds."""
    text = f"{figure.median * scale:{form}}"
    if figure.seeds > 1 and f"{figure.low * scale:{form}}" != f"{figure.high * scale:{form}}":
        return f"{text}{unit} ({figure.low * scale:{form}}–{figure.high * scale:{form}})"
    return f"{text}{unit}"


def dollars(figure: Figure) -> str:
    """Less than a dollar in hundredths of a cent: a walk-through of minutes costs some cents, and so does its bound."""
    return "$" + number(figure, ",.2f" if figure.median >= 1 else ".4f")


def count(figure: Figure) -> str:
    return number(figure, ",.0f")


def share(figure: Figure) -> str:
    return number(figure, ".0f", " %", 100.0)


def seconds(figure: Figure) -> str:
    return number(figure, ".0f", " s")


FORMATS: Mapping[str, Callable[[Figure], str]] = {
    "dollars": dollars,
    "lower_bound": dollars,
    "above_bound": share,
    "cpu_utilisation": share,
    "memory_utilisation": share,
    "ready_p50": seconds,
    "ready_p99": seconds,
}

_BEST: Mapping[str, Mapping[str, str]] = {
    "dollars": {"en": "cheapest: {own}; {others}", "ko": "비용이 가장 낮음: {own}; {others}"},
    "ready_p50": {
        "en": "quickest for the typical pod: half of the pods were ready within {own}; {others}",
        "ko": "보통 파드가 가장 빨리 준비됨: 절반이 {own} 안에 준비; {others}",
    },
    "ready_p99": {
        "en": "quickest for the slowest pods: 99 % were ready within {own}; {others}",
        "ko": "느린 파드도 가장 빨리 준비됨: 99 %가 {own} 안에 준비; {others}",
    },
    "pods_waited": {
        "en": "fewest pods waited for a node: {own}; {others}",
        "ko": "노드를 기다린 파드가 가장 적음: {own}개; {others}",
    },
    "evictions": {"en": "fewest evictions: {own}; {others}", "ko": "축출이 가장 적음: {own}건; {others}"},
    "nodes_launched": {
        "en": "fewest nodes launched: {own}; {others}",
        "ko": "띄운 노드가 가장 적음: {own}대; {others}",
    },
    "cpu_utilisation": {
        "en": "fullest nodes: pods request {own} of their CPU; {others}",
        "ko": "노드를 가장 꽉 채움: 파드가 CPU의 {own}를 요청; {others}",
    },
    "api_calls": {
        "en": "fewest requests to the Kubernetes API: {own}; {others}",
        "ko": "Kubernetes API 요청이 가장 적음: {own}건; {others}",
    },
    "most_nodes": {
        "en": "a lost node takes the smallest part of the pods with it: at its largest the fleet had {own} nodes; {others}",
        "ko": "노드 하나를 잃을 때 영향이 가장 작음: 가장 클 때 노드 {own}대; {others}",
    },
}
_WORST: Mapping[str, Mapping[str, str]] = {
    "dollars": {"en": "dearest: {own}; {others}", "ko": "비용이 가장 높음: {own}; {others}"},
    "ready_p50": {
        "en": "slowest for the typical pod: half of the pods were ready only after {own}; {others}",
        "ko": "보통 파드가 가장 늦게 준비됨: 절반이 준비되기까지 {own}; {others}",
    },
    "ready_p99": {
        "en": "slowest for the slowest pods: 99 % were ready only after {own}; {others}",
        "ko": "느린 파드가 가장 늦게 준비됨: 99 %가 준비되기까지 {own}; {others}",
    },
    "pods_waited": {
        "en": "most pods waited for a node: {own}; {others}",
        "ko": "노드를 기다린 파드가 가장 많음: {own}개; {others}",
    },
    "evictions": {"en": "most evictions: {own}; {others}", "ko": "축출이 가장 많음: {own}건; {others}"},
    "nodes_launched": {"en": "most nodes launched: {own}; {others}", "ko": "띄운 노드가 가장 많음: {own}대; {others}"},
    "cpu_utilisation": {
        "en": "emptiest nodes: pods request {own} of their CPU; {others}",
        "ko": "노드가 가장 비어 있음: 파드가 CPU의 {own}를 요청; {others}",
    },
    "api_calls": {
        "en": "most requests to the Kubernetes API: {own}; {others}",
        "ko": "Kubernetes API 요청이 가장 많음: {own}건; {others}",
    },
    "most_nodes": {
        "en": "a lost node takes the largest part of the pods with it: at its largest the fleet had {own} nodes; {others}",
        "ko": "노드 하나를 잃을 때 영향이 가장 큼: 가장 클 때 노드 {own}대; {others}",
    },
}
_EFFECT: Mapping[tuple[str, Side], Mapping[str, str]] = {
    ("dollars", Side.ADVANTAGE): {
        "en": "with {effect}, {name} costs {own} instead of {plain} ({change})",
        "ko": "{name}에 {effect} 사용: 비용 {plain} → {own} ({change})",
    },
    ("dollars", Side.DISADVANTAGE): {
        "en": "with {effect}, {name} costs {own} instead of {plain} ({change})",
        "ko": "{name}에 {effect} 사용: 비용 {plain} → {own} ({change})",
    },
    ("pods_waited", Side.ADVANTAGE): {
        "en": "with {effect}, {own} pods wait for a node of {name} instead of {plain}",
        "ko": "{name}에 {effect} 사용: 노드를 기다린 파드 {plain} → {own}개",
    },
    ("pods_waited", Side.DISADVANTAGE): {
        "en": "with {effect}, {own} pods wait for a node of {name} instead of {plain}: capacity follows the load",
        "ko": "{name}에 {effect} 사용: 노드를 기다린 파드 {plain} → {own}개 (용량이 부하를 뒤따르므로)",
    },
    ("evictions", Side.ADVANTAGE): {
        "en": "with {effect}, {name} has {own} evictions instead of {plain}",
        "ko": "{name}에 {effect} 사용: 축출 {plain} → {own}건",
    },
    ("evictions", Side.DISADVANTAGE): {
        "en": "with {effect}, {name} has {own} evictions instead of {plain}",
        "ko": "{name}에 {effect} 사용: 축출 {plain} → {own}건",
    },
}


def sentence(finding: StudyFinding, rows: Mapping[Setup, Row], language: str) -> str:
    """A finding in words, without a name in front where the reader knows whom it is about."""
    shown = FORMATS.get(finding.measure, count)
    own = rows[finding.about][finding.measure]
    if finding.effect:
        plain = rows[finding.others[0]][finding.measure]
        template = _EFFECT[finding.measure, finding.side][language]
        text = template.format(
            effect=finding.effect.upper(),
            name=Setup(finding.about.nodes).title,
            own=shown(own),
            plain=shown(plain),
            change=change(own, plain),
        )
        return text[:1].upper() + text[1:]
    others = ", ".join(
        f"{TITLES[setup.nodes]} {shown(rows[setup][finding.measure])}{_against(finding.measure, rows[setup], own)}"
        for setup in finding.others
    )
    template = (_BEST if finding.side is Side.ADVANTAGE else _WORST)[finding.measure][language]
    return template.format(own=shown(own), others=others)


def change(own: Figure, other: Figure) -> str:
    """By how much a figure is above or below another one."""
    if not other.median:
        return "—"
    return f"{100.0 * (own.median / other.median - 1.0):+.0f} %"


def _against(measure: str, row: Row, own: Figure) -> str:
    return f" ({change(row[measure], own)})" if measure == "dollars" and own.median else ""


TEXTS: Mapping[str, Mapping[str, str]] = {
    "title": {"en": "Node autoscalers compared: {workload}", "ko": "노드 오토스케일러 비교: {workload}"},
    "lead": {
        "en": "{hours} of this workload were played on {count} set-ups in virtual time, with {seeds}, at the prices of "
        "{region}.",
        "ko": "이 워크로드 {hours} 분량을 {count}가지 구성에서 가상 시간으로 돌렸습니다. {seeds}, 가격은 {region} 기준입니다.",
    },
    "one_seed": {
        "en": "one seed (differences below {least} % are not reported; --seeds 5 shows the spread)",
        "ko": "시드 하나({least} % 미만의 차이는 적지 않습니다. --seeds 5 로 편차를 볼 수 있습니다)",
    },
    "seeds": {
        "en": "{count} seeds (medians, in brackets the least and the most; a difference is reported only where no seed "
        "contradicts it)",
        "ko": "시드 {count}개(중앙값, 괄호 안은 최소와 최대. 어느 시드와도 어긋나지 않는 차이만 적습니다)",
    },
    "short": {"en": "In short", "ko": "요약"},
    "figures": {"en": "Figures", "ko": "수치"},
    "charts": {"en": "Charts", "ko": "그림"},
    "autoscalers": {"en": "Advantages and disadvantages", "ko": "장단점"},
    "advantages": {"en": "Advantages", "ko": "장점"},
    "disadvantages": {"en": "Disadvantages", "ko": "단점"},
    "effects": {"en": "What HPA and VPA change", "ko": "HPA와 VPA의 효과"},
    "no_finding": {"en": "No measure sets it apart in this run.", "ko": "이번 실행에서 두드러진 점이 없습니다."},
    "method": {"en": "How it was measured", "ko": "측정 방법"},
    "cheapest": {
        "en": "{name} is the cheapest{variant}: {own}, {above} above the lower bound of {bound}; {others}.",
        "ko": "비용이 가장 낮은 구성{variant}: {name} {own} (하한 {bound}보다 {above} 높음); {others}.",
    },
    "only": {
        "en": "{name} costs {own}{variant}, {above} above the lower bound of {bound}.",
        "ko": "{name} 비용{variant}: {own} (하한 {bound}보다 {above} 높음).",
    },
    "no_cheapest": {
        "en": "No set-up is the cheapest{variant} beyond the spread: {others}.",
        "ko": "편차를 넘어 가장 싼 구성은 없습니다{variant}: {others}.",
    },
    "no_cheapest_of_one_seed": {
        "en": "No set-up is the cheapest{variant} by more than {least} %: {others}.",
        "ko": "{least} % 넘게 더 싼 구성은 없습니다{variant}: {others}.",
    },
    "requests_differ": {
        "en": "The pods themselves differ{variant}, because a pod gets the requests that VPA recommends when it is created "
        "anew: lower bounds of what the pods request are {bounds}; evictions {evictions}.",
        "ko": "파드는 다시 만들어질 때 VPA가 권하는 요청량을 받으므로 구성마다 파드 자체가 다릅니다{variant}. 요청량의 하한: {bounds}; "
        "축출: {evictions}.",
    },
    "table_note": {
        "en": "Lower bound: no fleet that these NodePools allow can run these pods for less. Waited: bound more than "
        "{waited} s after creation. Ready: from creation to Ready, of half and of 99 % of the pods.",
        "ko": "하한: 이 NodePool로 만들 수 있는 어떤 노드 구성도 이보다 싸게 이 파드들을 돌릴 수 없습니다. 대기: 생성 후 {waited}초가 "
        "지나서 노드에 배정된 파드. 준비: 생성부터 Ready까지, 파드의 절반과 99 %.",
    },
    "method_1": {
        "en": "Every set-up gets the same pods, the same load and the same cluster: API server, kube-scheduler, "
        "workload controllers and kubelets of Dovetail's lab, in virtual time. Instances join after {boot} s.",
        "ko": "모든 구성이 같은 파드, 같은 부하, 같은 클러스터를 받습니다. Dovetail 랩의 API 서버, kube-scheduler, 워크로드 컨트롤러, "
        "kubelet이 가상 시간으로 돕니다. 인스턴스는 {boot}초 뒤에 조인합니다.",
    },
    "method_2": {
        "en": "Cluster Autoscaler runs with --balance-similar-node-groups on the node groups {groups}.",
        "ko": "Cluster Autoscaler는 --balance-similar-node-groups 로 다음 노드 그룹에서 돕니다: {groups}.",
    },
    "method_3": {
        "en": "Karpenter is emulated: the decisions of version 1.15 (its scheduler, batching, emptiness, multi-node and "
        "single-node consolidation) with kube-scheduler placing the pods; launch, drain and termination are shared with "
        "Dovetail. Both have the NodePools {pools}.",
        "ko": "Karpenter는 에뮬레이션입니다. 1.15의 결정(스케줄러, 배치, 빈 노드 제거, 다중·단일 노드 통합)을 따르고 파드 배치는 "
        "kube-scheduler가 합니다. 인스턴스 시작, 드레인, 종료는 Dovetail과 같습니다. 두 구성의 NodePool: {pools}.",
    },
    "method_4": {
        "en": "Costs are those of the instances from launch to termination. Requests are the autoscaler's own; watches "
        "count once.",
        "ko": "비용은 인스턴스의 시작부터 종료까지입니다. 요청 수는 오토스케일러 자신의 것이며, watch는 한 번으로 셉니다.",
    },
    "again": {"en": "Run it again: {command}", "ko": "다시 실행: {command}"},
    "chart_cost": {"en": "Cost and lower bound", "ko": "비용과 하한"},
    "chart_rate": {"en": "Dollars an hour over time{variant}", "ko": "시간에 따른 시간당 비용{variant}"},
    "chart_ready": {
        "en": "Seconds until 50 % (pale) and 99 % of the pods are ready",
        "ko": "파드의 50 %(옅은 색)와 99 %가 준비되기까지의 초",
    },
    "chart_evictions": {"en": "Evictions", "ko": "축출"},
    "bound": {"en": "lower bound", "ko": "하한"},
    "for_hpa": {"en": " with HPA", "ko": " (HPA)"},
    "for_vpa": {"en": " with VPA", "ko": " (VPA)"},
}
COLUMNS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("setup", {"en": "set-up", "ko": "구성"}),
    ("dollars", {"en": "cost", "ko": "비용"}),
    ("lower_bound", {"en": "lower bound", "ko": "하한"}),
    ("utilisation", {"en": "CPU/mem used", "ko": "CPU/메모리"}),
    ("ready", {"en": "ready 50/99 %", "ko": "준비 50/99 %"}),
    ("pods_waited", {"en": "waited", "ko": "대기"}),
    ("evictions", {"en": "evicted", "ko": "축출"}),
    ("nodes", {"en": "nodes +/−", "ko": "노드 +/−"}),
    ("api_calls", {"en": "API calls", "ko": "API 요청"}),
    ("cloud_calls", {"en": "cloud calls", "ko": "클라우드"}),
)


def text(key: str, language: str, **values: object) -> str:
    return TEXTS[key][language].format(**values)


def cells(row: Row) -> list[str]:
    """A row of the table, in the order of COLUMNS."""
    bound = dollars(row["lower_bound"])
    if "above_bound" in row.figures:
        bound += f" ({100 * row['above_bound'].median:+.0f} %)"
    ready = "–"
    if "ready_p50" in row.figures and "ready_p99" in row.figures:
        ready = f"{row['ready_p50'].median:.0f}/{row['ready_p99'].median:.0f} s"
    return [
        row.setup.title,
        dollars(row["dollars"]),
        bound,
        f"{100 * row['cpu_utilisation'].median:.0f}/{100 * row['memory_utilisation'].median:.0f} %",
        ready,
        count(row["pods_waited"]),
        count(row["evictions"]),
        f"{row['nodes_launched'].median:.0f}/{row['nodes_removed'].median:.0f}",
        count(row["api_calls"]),
        count(row["cloud_calls"]),
    ]
