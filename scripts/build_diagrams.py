"""Writes the diagrams of the documentation into docs/images, in English and Korean (NAME.svg, NAME-ko.svg).

python scripts/build_diagrams.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.diagrams import Arrow, Box, Message, Note, boxes_and_arrows, sequence

IMAGES = Path(__file__).parents[1] / "docs" / "images"
#: A text in the language of the picture: `say(english, korean)`.
Say = Callable[[str, str], str]


def architecture(say: Say) -> str:
    boxes = [
        Box("api", 0, 0.6, say("Kubernetes API", "쿠버네티스 API")),
        Box("state", 1.15, 0, "cluster.state"),
        Box("planner", 2.3, 0, say("planner\npure function", "planner\n순수 함수"), accent=True),
        Box("verify", 3.45, 0, say("planner.verify\nindependent check", "planner.verify\n독립적인 검증"), accent=True),
        Box("controllers", 2.3, 1.3, say("controllers\none loop each", "controllers\n컨트롤러마다 루프 하나")),
        Box("cloud", 3.45, 1.3, say("cloud provider", "클라우드 프로바이더")),
        Box("history", 2.3, 2.5, say("decision history", "결정 이력")),
    ]
    arrows = [
        Arrow("api", "state", "watch"),
        Arrow("state", "planner", "Snapshot"),
        Arrow("planner", "verify", "Plan"),
        Arrow("verify", "controllers"),
        Arrow("controllers", "api", say("write", "쓰기")),
        Arrow("controllers", "cloud", say("launch,\nterminate", "시작,\n종료")),
        Arrow("controllers", "history", say("decision id, reasons,\nprices, bound", "결정 ID, 이유,\n가격, 하한")),
    ]
    return boxes_and_arrows(
        say("Watch, snapshot, plan, verify, act, record", "감시, 스냅샷, 계획, 검증, 실행, 기록"), boxes, arrows
    )


def nodeclaim(say: Say) -> str:
    boxes = [
        Box("created", 0, 0, say("Created\npods, decision, price", "Created\n파드, 결정, 가격 기록")),
        Box("launched", 1.3, 0, say("Launched\nthe instance runs", "Launched\n인스턴스 실행 중")),
        Box("registered", 2.6, 0, say("Registered\nthe Node has joined", "Registered\n노드가 조인함")),
        Box("bound", 2.6, 1.25, say("pods bound\nDaemonSet pods first", "파드 바인딩\nDaemonSet 파드 먼저")),
        Box(
            "initialized",
            2.6,
            2.5,
            say("Initialized\nReady, startup taints gone", "Initialized\nReady, 시작 테인트 제거됨"),
            accent=True,
        ),
        Box(
            "disrupted",
            1.3,
            2.5,
            say(
                "disrupted\nempty, underutilized, drifted,\nexpired, unhealthy, interrupted",
                "중단 대상\n비어 있음, 저활용, 드리프트,\n만료, 비정상, 인터럽션",
            ),
            width=215,
        ),
        Box("deleted", 0, 1.25, say("deleted", "삭제됨")),
        Box("draining", 0, 2.5, say("draining\nfour tiers of evictions", "드레이닝\n네 단계의 축출")),
        Box("terminated", 0, 3.6, say("terminated\nfinalizers removed", "종료됨\n파이널라이저 제거")),
    ]
    arrows = [
        Arrow("created", "launched", say("launch", "시작")),
        Arrow("launched", "registered", say("the node\njoins", "노드\n조인")),
        Arrow("registered", "bound"),
        Arrow("bound", "initialized"),
        Arrow("initialized", "disrupted"),
        Arrow("created", "deleted", say("no capacity,\nor 5 min", "용량 없음\n또는 5분 경과")),
        Arrow("launched", "deleted", say("15 min without\na Node", "15분간\n노드 없음")),
        Arrow("disrupted", "deleted", say("replacements are\nInitialized", "대체 노드가\nInitialized")),
        Arrow("initialized", "deleted", "kubectl delete", bend=30, shift=-4),
        Arrow("deleted", "draining"),
        Arrow("draining", "terminated", say("volumes detached", "볼륨 분리")),
    ]
    return boxes_and_arrows(say("Life of a NodeClaim", "NodeClaim의 일생"), boxes, arrows)


def disruption(say: Say) -> str:
    participants = [
        ("C", "controller"),
        ("P", "planner"),
        ("Q", "queue"),
        ("V", "validation"),
        ("K", say("Kubernetes", "쿠버네티스")),
    ]
    steps: list[Message | Note] = [
        Note(
            say(
                "candidates: budgets, PDBs, do-not-disrupt, nominations",
                "후보: 중단 예산, PDB, do-not-disrupt, 노미네이션",
            )
        ),
        Message("C", "P", say("the fleet without some", "일부를 뺀 노드 전체")),
        Message("P", "C", say("plan, bound, saving", "계획, 하한, 절감액"), dashed=True),
        Note(say("the proposal must hold for 15 s", "제안은 15초 동안 유효해야 합니다")),
        Message("C", "Q", say("start the command", "명령 시작")),
        Message("Q", "V", say("does it still hold?", "아직 유효한가?")),
        Message("Q", "K", say("taint candidates, write replacements", "후보에 테인트, 대체 NodeClaim 작성")),
        Note(
            say(
                "every second until the replacements are Initialized: does it still hold?",
                "대체 노드가 Initialized될 때까지 매초 확인: 아직 유효한가?",
            )
        ),
        Message("Q", "K", say("it holds: delete the candidates' NodeClaims", "유효함: 후보의 NodeClaim 삭제")),
        Message(
            "Q",
            "K",
            say("else: untaint, delete replacements, record an undo", "아니면: 테인트 해제, 대체 삭제, undo 기록"),
            dashed=True,
        ),
    ]
    return sequence(say("A disruption command", "중단 명령"), participants, steps)


def planner(say: Say) -> str:
    boxes = [
        Box("snapshot", 0, 0.9, "Snapshot"),
        Box(
            "problem",
            1.05,
            0.9,
            say(
                "problem\npod classes, offerings,\ntopology groups, nodes",
                "problem\n파드 클래스, 제안,\n토폴로지 그룹, 노드",
            ),
        ),
        Box("packing", 2.15, 0.2, say("packing, tier 1\nportfolio of strategies", "packing, 1단계\n전략 포트폴리오")),
        Box("baseline", 2.15, 1.6, say("baseline\nKarpenter, simulated", "baseline\nKarpenter 시뮬레이션")),
        Box("score", 3.2, 0.9, say("Score\none objective", "Score\n하나의 목적 함수"), accent=True),
        Box(
            "optimise",
            3.2,
            2.15,
            say(
                "optimise, tier 2\nLP, rounding, patterns,\nlocal search, lower bound",
                "optimise, 2단계\nLP, 반올림, 패턴,\n지역 탐색, 하한",
            ),
        ),
        Box(
            "launch",
            4.25,
            0.9,
            say("launch\nNodeClaims with all\ncompatible offerings", "launch\n맞는 제안을 모두 담은\nNodeClaim"),
        ),
        Box("explain", 2.15, 2.75, say("explain\nfunnels, remedies", "explain\n필터 단계, 해결 방법")),
        Box(
            "verify",
            4.25,
            2.15,
            say("verify\nshares no code\nwith the packer", "verify\n패킹 코드를\n공유하지 않음"),
            accent=True,
        ),
    ]
    arrows = [
        Arrow("snapshot", "problem"),
        Arrow("problem", "packing"),
        Arrow("problem", "baseline"),
        Arrow("problem", "explain", bend=-10),
        Arrow("packing", "score"),
        Arrow("baseline", "score"),
        Arrow("score", "optimise", bend=14),
        Arrow("optimise", "score", bend=14),
        Arrow("score", "launch"),
        Arrow("launch", "verify", "Plan"),
    ]
    return boxes_and_arrows(say("From snapshot to plan", "스냅샷에서 계획까지"), boxes, arrows)


def objective(say: Say) -> str:
    order = [
        say(
            "1  no pod lost\npods that Karpenter places have a node",
            "1  잃는 파드 없음\nKarpenter가 배치하는 파드는 노드를 얻음",
        ),
        say("2  spreads hold\nin any order of binding", "2  분산 제약 유지\n바인딩 순서와 무관하게"),
        say("3  pending pods\nas few as possible", "3  대기 파드\n되도록 적게"),
        say("4  not dearer\nthan Karpenter's placement", "4  더 비싸지 않음\nKarpenter의 배치와 비교해서"),
        say(
            "5  weighted cost\n$/h plus at most 10 %\nfor preferences and zones",
            "5  가중 비용\n시간당 비용 + 선호와 영역의 몫\n(합쳐서 최대 10 %)",
        ),
    ]
    boxes = [
        Box(f"p{index}", index % 3 * 1.3, index // 3 * 1.1, text, accent=index == 4, width=235)
        for index, text in enumerate(order)
    ]
    arrows = [
        Arrow("p0", "p1", say("tie", "같으면")),
        Arrow("p1", "p2", say("tie", "같으면")),
        Arrow("p2", "p3", say("tie", "같으면")),
        Arrow("p3", "p4", say("tie", "같으면")),
    ]
    return boxes_and_arrows(
        say("What is a better plan: earlier parts decide first", "더 나은 계획: 앞의 항목이 먼저 결정한다"),
        boxes,
        arrows,
    )


def bound(say: Say) -> str:
    boxes = [
        Box("bound", 0, 0, say("lower bound\nLP relaxation, proven", "하한\nLP 완화, 증명됨"), accent=True),
        Box("optimum", 1.35, 0, say("optimum\nunknown", "최적\n알 수 없음")),
        Box("plan", 2.7, 0, say("plan\nwhole nodes, all rules", "계획\n온전한 노드, 모든 규칙"), accent=True),
        Box("karpenter", 4.05, 0, say("Karpenter's placement\nof the same pods", "같은 파드에 대한\nKarpenter의 배치")),
    ]
    arrows = [
        Arrow("bound", "optimum", "≤"),
        Arrow("optimum", "plan", "≤"),
        Arrow("plan", "karpenter", "≤"),
    ]
    return boxes_and_arrows(
        say("The optimum lies between the bound and the plan", "최적은 하한과 계획 사이에 있다"), boxes, arrows
    )


def _testing_boxes(say: Say) -> list[Box]:
    return [
        Box("laws", 0, 0, say("laws\nHypothesis, pure functions", "법칙\nHypothesis, 순수 함수"), width=200),
        Box(
            "scenarios",
            1.25,
            0,
            say("scenarios\nvirtual time, seeds, faults", "시나리오\n가상 시간, 시드, 장애"),
            width=200,
        ),
        Box("lab", 2.5, 0, say("lab\nreal kubectl, helm and aws", "랩\n실제 kubectl, helm, aws"), width=200),
        Box(
            "real",
            3.75,
            0,
            say("real control plane\nKubernetes built from source", "실제 컨트롤 플레인\n소스에서 빌드한 쿠버네티스"),
            width=210,
        ),
        Box(
            "verify",
            0,
            1.2,
            say("verifier\nevery plan, also in production", "검증기\n운영 중에도 모든 계획"),
            accent=True,
            width=200,
        ),
        Box(
            "invariants",
            1.25,
            1.2,
            say("invariants\nevery write, from outside", "불변식\n모든 쓰기를 밖에서"),
            accent=True,
            width=200,
        ),
        Box(
            "recordings",
            3.75,
            1.2,
            say("recordings\nthe lab answers alike", "기록\n랩도 똑같이 응답"),
            accent=True,
            width=210,
        ),
        Box(
            "judges",
            2.5,
            1.2,
            say(
                "judges\nKarpenter's scheduler,\nVPA's and Go's own code",
                "심판\nKarpenter 스케줄러,\nVPA와 Go의 원본 코드",
            ),
            accent=True,
            width=200,
        ),
    ]


def testing(say: Say) -> str:
    arrows = [
        Arrow("laws", "scenarios"),
        Arrow("scenarios", "lab"),
        Arrow("lab", "real"),
        Arrow("verify", "laws"),
        Arrow("invariants", "scenarios"),
        Arrow("judges", "lab"),
        Arrow("recordings", "real"),
    ]
    return boxes_and_arrows(say("What holds the code", "코드를 지키는 것"), _testing_boxes(say), arrows)


DIAGRAMS: dict[str, Callable[[Say], str]] = {
    "architecture": architecture,
    "nodeclaim-life": nodeclaim,
    "disruption-command": disruption,
    "planner-stages": planner,
    "planner-objective": objective,
    "planner-bound": bound,
    "testing": testing,
}


def texts() -> dict[str, str]:
    """File name and content of every picture."""
    english: Say = lambda english, _: english  # noqa: E731
    korean: Say = lambda _, korean: korean  # noqa: E731
    files = {f"{name}.svg": draw(english) for name, draw in DIAGRAMS.items()}
    return {**files, **{f"{name}-ko.svg": draw(korean) for name, draw in DIAGRAMS.items()}}


if __name__ == "__main__":
    stale = [
        name for name, text in texts().items() if not (IMAGES / name).exists() or (IMAGES / name).read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"not as the script draws them: {', '.join(stale)}; run python scripts/build_diagrams.py")
    else:
        for name, text in texts().items():
            (IMAGES / name).write_text(text)
