"""English texts are recognized by their templates, and shown in the reader's language."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.autoscalers.node_groups import drain, unremovable
from dovetail.cloud.aws import errors
from dovetail.cloud.aws.errors import CAPACITY_CODES, described
from dovetail.language import in_language, message, recognition
from dovetail.language.recognition import recognized
from dovetail.model.cron import CronError, parse
from dovetail.model.reasons import REASONS


@pytest.fixture
def korean() -> Iterator[None]:
    with in_language("ko"):
        yield


def test_a_reader_of_english_sees_what_was_recorded() -> None:
    assert recognized("no subnet in ap-northeast-2a has addresses left") == (
        "no subnet in ap-northeast-2a has addresses left"
    )


@pytest.mark.parametrize("code", sorted(REASONS))
def test_every_reason_is_recognized(korean: None, code: str) -> None:
    reason = REASONS[code]
    facts = {name: f"x-{index}" for index, (_, name, _, _) in enumerate(string.Formatter().parse(reason.text)) if name}
    with in_language("en"):
        recorded = message(reason.text, **facts)
    assert recognized(recorded) == message(reason.text, **facts) != recorded
    assert recognized(reason.remedy) == message(reason.remedy) != reason.remedy


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("No such file or directory", "그런 파일이나 디렉터리가 없습니다"),
        ("pending: kube-scheduler has not tried it yet", "대기 중: kube-scheduler가 아직 시도하지 않았습니다"),
        ("cpu 400 (at most 3920m)", "cpu 400 (최대 3920m)"),
        ("NodePool default has less weight", "NodePool default의 가중치가 더 낮습니다"),
        (
            "pending: NodePool default: cpu 400 (at most 3920m) left none of 16 offerings; ask for less, or allow "
            "larger types (nearest: m5.xlarge in ap-northeast-2a, $0.2360/h, lacks cpu 396080m) (NO_TYPE_FITS)",
            "대기 중: NodePool default: cpu 400 (최대 3920m)에서 제안 16개가 모두 제외됩니다; 더 적게 요청하거나 더 큰 "
            "타입을 허용하세요 (가장 가까운 것: ap-northeast-2a의 m5.xlarge, $0.2360/h, cpu 396080m 부족) "
            "(NO_TYPE_FITS)",
        ),
        (
            "NodePool default: cpu 400 (at most 3770m, daemons take 150m) left none of 16 offerings; ask for less, or "
            "allow larger types (nearest: m5.xlarge in ap-northeast-2a, $0.2360/h, lacks cpu 396230m) (NO_TYPE_FITS)",
            "NodePool default: cpu 400 (최대 3770m, 데몬이 150m 사용)에서 제안 16개가 모두 제외됩니다; 더 적게 "
            "요청하거나 더 큰 타입을 허용하세요 (가장 가까운 것: ap-northeast-2a의 m5.xlarge, $0.2360/h, "
            "cpu 396230m 부족) (NO_TYPE_FITS)",
        ),
        ("2 node(s) for 7 pod(s) at $0.2360/h", "파드 7개를 위해 노드 2개, 시간당 $0.2360"),
        ("/nope: Permission denied; call her", "/nope: 권한이 없습니다; call her"),
    ],
)
def test_facts_stay_and_words_are_translated(korean: None, recorded: str, shown: str) -> None:
    assert recognized(recorded) == shown


@pytest.mark.parametrize("text", ["", "default", "m5.large", "the cat sat on the mat", "{name", "100 %"])
def test_what_no_template_made_stays(korean: None, text: str) -> None:
    assert recognized(text) == text


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    with in_language("ko"):
        assert isinstance(recognized(text), str)


def test_both_forms_of_a_plural_are_recognized(korean: None) -> None:
    assert recognized("1 volume of ebs.csi.aws.com") == "ebs.csi.aws.com의 볼륨 1개"
    assert recognized("3 volumes of ebs.csi.aws.com") == "ebs.csi.aws.com의 볼륨 3개"


def test_a_template_of_facts_alone_fits_nothing() -> None:
    with in_language("ko"):
        assert all(
            sum(char.isalpha() for literal, _, _, _ in string.Formatter().parse(template.text) for char in literal)
            >= recognition.MIN_LETTERS
            for template in recognition._templates()
        )
        assert len(recognition._templates()) > 500


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (
            "stays: no cheaper replacement: the fleet costs about as much as a freshly planned one "
            "(NEAR_BEST, saving $0.0000/h)",
            "유지됨: 더 싼 대체 노드가 없습니다: 현재 비용이 새로 계획한 것과 거의 같습니다 "
            "(NEAR_BEST, 절감 $0.0000/h)",
        ),
        (
            "budget Underutilized: 1 of 2 may be disrupted now (nodes: 10%, 1 disrupting or not ready)",
            "예산 Underutilized: 지금 2개 중 1개를 중단할 수 있습니다 (노드: 10%, 중단 중이거나 준비되지 않은 것 1개)",
        ),
        (
            "m5.large, ap-northeast-2a, on-demand, $0.1180/h at launch; 7 pod(s) request 8% of cpu, 74% of memory",
            "m5.large, ap-northeast-2a, on-demand, 시작 시 $0.1180/h; 파드 7개가 cpu의 8%, memory의 74% 요청",
        ),
        (
            "would get a node if you make 2 changes: give the nodes of NodePool default the label a=web; "
            "let NodePool default use m5",
            "다음 2가지를 바꾸면 노드를 받습니다: NodePool default의 노드에 레이블 a=web을 부여; "
            "NodePool default가 m5를 사용하게 함",
        ),
    ],
)
def test_answers_about_nodes_and_pods_are_recognized_whole(korean: None, recorded: str, shown: str) -> None:
    """A fact that counts or is a moment has no space; what stands in a row is taken apart."""
    assert recognized(recorded) == shown


@pytest.mark.parametrize(
    "said",
    [
        "0/8 nodes are available: 3 Insufficient cpu, 3 node(s) didn't match Pod's node affinity/selector. no new"
        " claims to deallocate, preemption: 0/8 nodes are available: 8 Preemption is not helpful for scheduling.",
        "Container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin"
        " returns error: cni plugin not initialized",
    ],
)
def test_what_another_program_says_stays_as_it_says_it(said: str) -> None:
    with in_language("ko"):
        assert recognized(said) == said


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("the role is not allowed", "the role is not allowed"),
        (
            "NodePool search: taint night:NoSchedule left none of 12 offerings; add a toleration, or use another "
            "NodePool",
            "NodePool search: taint night:NoSchedule에서 제안 12개가 모두 제외됩니다; "
            "톨러레이션을 추가하거나 다른 NodePool을 사용하세요",
        ),
        (
            "NodePool search: taem In [web] (no node has that label; did you mean team?) left none of 12 offerings; "
            "ask for something that it offers, or use another NodePool",
            "NodePool search: taem In [web] (그 레이블을 가진 노드가 없습니다; team을 뜻했나요?)에서 제안 12개가 모두 "
            "제외됩니다; 이 풀이 제공하는 것을 요청하거나 다른 NodePool을 쓰세요",
        ),
        (
            "0 nodes; not ready: EC2NodeClass default is not ready; see its status.conditions (NO_NODEPOOL)",
            "노드 0개; 준비 안 됨: EC2NodeClass default는 ready가 아닙니다; "
            "status.conditions를 확인하세요 (NO_NODEPOOL)",
        ),
    ],
)
def test_no_particle_is_added_to_a_sentence_of_another_program(korean: None, recorded: str, shown: str) -> None:
    """`{name} is not {kind}` fits it, with half of a sentence as the name."""
    assert recognized(recorded) == shown


def test_a_text_inside_another_is_read_before_a_short_template_around_it() -> None:
    with in_language("ko"):
        shown = recognized("rolled back, n1: it is no longer drifted: x")
    assert shown == "되돌림, n1: 더 이상 드리프트 상태가 아닙니다: x"


def test_the_colon_after_a_name_belongs_to_the_template(korean: None) -> None:
    text = recognized("nodepool default: 16 offerings; none left by cpu 400")
    assert text.startswith("nodepool default: 제안 16개")


def test_a_template_of_function_words_does_not_recognize_a_sentence_of_another(korean: None) -> None:
    text = "unable to fetch metrics from custom metrics API: the server could not find the metric for pods"
    assert recognized(text) == text


@pytest.mark.parametrize("schedule", ["61 * * * *", "9-8 * * * *", "* * * *", "@dayly", "1--2 * * * *", "*/0 * * * *"])
def test_a_schedule_that_cannot_be_read_says_so_in_korean(korean: None, schedule: str) -> None:
    with pytest.raises(CronError) as refused:
        parse(schedule)
    said = recognized(str(refused.value))
    assert said != str(refused.value) and not any(word in said for word in ("range", "field", "descriptor", "many"))


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("can't replace with a cheaper node", "더 싼 노드로 교체할 수 없습니다"),
        ("subnets of default", "default의 서브넷"),
        ("policies of the role are missing", "policies of the role are missing"),
    ],
)
def test_what_consolidation_and_doctor_name_is_korean(korean: None, recorded: str, shown: str) -> None:
    assert recognized(recorded) == shown


@pytest.mark.parametrize("code", sorted({*errors._MEANING, *CAPACITY_CODES, "ExpiredToken", "ConnectTimeoutError"}))
def test_the_remedy_of_an_error_of_aws_is_recognized_however_long_the_error_is(korean: None, code: str) -> None:
    said = "You are not allowed to do what you have asked for because of something that this long text is about" * 3
    with in_language("en"):
        recorded = described(code, f"{said}. Encoded authorization failure message: x")
    assert recorded.startswith(f"{code}: {said} (aws sts decode-")
    shown = recognized(recorded)
    assert shown.startswith(f"{code}: {said} (나머지는 aws sts decode-")
    english = recorded.rpartition("log); ")[2]
    assert shown.rpartition("); ")[2] != english
    assert english.rpartition(" ")[2] == shown.rpartition(" ")[2], "the code"


def test_only_what_ends_with_a_remedy_and_a_code_of_ours_is_read_so(korean: None) -> None:
    foreign = "it is a very long sentence of quite another program that we have not written at all; wait for it (X)"
    assert recognized(foreign) == foreign


def test_what_a_condition_says_behind_its_object_and_reason_is_recognized_whole(korean: None) -> None:
    recorded = (
        "is not ready: EC2NodeClass general: InstanceProfileNotReady: spec.role: IAM has no role 'typo'; create it, or "
        "name the role your nodes use (BAD_NODECLASS)"
    )
    assert recognized(recorded) == (
        "준비되지 않았습니다: EC2NodeClass general: InstanceProfileNotReady: spec.role: IAM에 역할 'typo'가 없습니다; "
        "역할을 만들거나 노드가 쓰는 역할을 지정하세요 (BAD_NODECLASS)"
    )
    terms = "tags karpenter.sh/discovery=web"
    recorded = f"SubnetSelector did not match any Subnets: {terms}; tag the subnets or change the terms (BAD_NODECLASS)"
    assert recognized(f"EC2NodeClass web: SubnetsNotFound: {recorded}") == (
        f"EC2NodeClass web: SubnetsNotFound: SubnetSelector와 일치하는 서브넷이 없습니다: {terms}; 서브넷에 태그를 "
        "붙이거나 조건을 바꾸세요 (BAD_NODECLASS)"
    )


@pytest.mark.parametrize("remedy", [*unremovable.REMEDIES.values(), *drain.REMEDIES.values()])
def test_remedies_of_nodes_that_node_groups_keep_are_recognized(korean: None, remedy: str) -> None:
    assert recognized(f"stays: cluster-autoscaler: {remedy} (Code)") != f"stays: cluster-autoscaler: {remedy} (Code)"
    assert not re.search("[a-z]{3,} [a-z]{3,} [a-z]{3,}", recognized(remedy))


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("0 node(s); ready", "노드 0개; 준비됨"),
        (
            "last refusal: 5 pod(s), type In [c, m] (these are no instance types); ask for less [NO_TYPE_MATCHES]",
            "마지막 거부: 파드 5개, type In [c, m] (인스턴스 타입이 아닙니다); 더 적게 요청하세요 [NO_TYPE_MATCHES]",
        ),
        (
            "no image; write the key a/category instead of a/type (NO_TYPE_MATCHES)",
            "no image; a/type 대신 키 a/category를 쓰세요 (NO_TYPE_MATCHES)",
        ),
        ("1 node(s) for $0.02/h at launch; ready; in safe mode", "노드 1개, 시작 시 $0.02/h; 준비됨; 안전 모드"),
        ("web-1 is deleted: launch timeout", "web-1이 삭제됩니다: 시작 시간 초과"),
        ("web-1 (m5.large, a, spot) is deleted: spot interrupted", "web-1 (m5.large, a, spot)이 삭제됩니다: 스팟 중단"),
    ],
)
def test_states_and_reasons_at_the_end_of_a_text_are_recognized(korean: None, recorded: str, shown: str) -> None:
    assert recognized(recorded) == shown
