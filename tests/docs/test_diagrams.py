"""The pictures in the repository are those that the script draws, and both languages have all of them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from scripts.build_diagrams import IMAGES, texts


def test_pictures_are_as_the_script_draws_them() -> None:
    assert {name for name, text in texts().items() if (IMAGES / name).read_text() != text} == set()


def test_pictures_are_well_formed_and_korean_ones_are_korean() -> None:
    for name, text in texts().items():
        drawn = "".join(
            element.text or "" for element in ElementTree.fromstring(text).iter() if element.tag.endswith("text")
        )
        assert drawn
        assert bool(re.search(r"[가-힣]", drawn)) == name.endswith("-ko.svg"), name
