"""English texts are recognized by their templates, and shown in the reader's language."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.language import message, recognition, speaking
from dovetail.language.recognition import recognized
from dovetail.model.reasons import REASONS


@pytest.fixture
def korean() -> Iterator[None]:
    with speaking("ko"):
        yield


def test_a_reader_of_english_sees_what_was_recorded() -> None:
    assert recognized("no subnet in ap-northeast-2a has addresses left") == (
        "no subnet in ap-northeast-2a has addresses left"
    )


@pytest.mark.parametrize("code", sorted(REASONS))
def test_every_reason_is_recognized(korean: None, code: str) -> None:
    reason = REASONS[code]
    facts = {name: f"x-{index}" for index, (_, name, _, _) in enumerate(string.Formatter().parse(reason.text)) if name}
    with speaking("en"):
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
    with speaking("ko"):
        assert isinstance(recognized(text), str)


def test_both_forms_of_a_plural_are_recognized(korean: None) -> None:
    assert recognized("1 volume of ebs.csi.aws.com") == "ebs.csi.aws.com의 볼륨 1개"
    assert recognized("3 volumes of ebs.csi.aws.com") == "ebs.csi.aws.com의 볼륨 3개"


def test_a_template_of_facts_alone_fits_nothing() -> None:
    with speaking("ko"):
        assert all(
            sum(char.isalpha() for literal, _, _, _ in string.Formatter().parse(template.text) for char in literal)
            >= recognition.MIN_LETTERS
            for template in recognition._templates()
        )
        assert len(recognition._templates()) > 500
