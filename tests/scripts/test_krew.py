"""The krew manifest is what the script writes, and its digest that of the archive."""

from __future__ import annotations

import hashlib
import io
import tarfile

import yaml

from dovetail import __version__
from scripts import build_krew


def test_the_manifest_is_current_and_names_the_archive() -> None:
    text = build_krew.MANIFEST.read_text()
    assert text == build_krew.manifest(), "python scripts/build_krew.py writes it"
    spec = yaml.safe_load(text)["spec"]
    assert spec["version"] == f"v{__version__}"
    platform = spec["platforms"][0]
    packed = build_krew.archive()
    assert platform["sha256"] == hashlib.sha256(packed).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getnames() == [row["from"] for row in platform["files"]]
        assert tar.getmember(platform["bin"]).mode & 0o111
