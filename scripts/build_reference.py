"""Writes the reference pages of the documentation into docs/reference, from the code, in English and Korean.

python scripts/build_reference.py [--check] [--missing]

`--check` fails where a page is not as the code says, or a text has no Korean; `--missing` prints those texts as YAML.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from dovetail.model.reasons import REASONS
from scripts.reference.commands import commands
from scripts.reference.formats import plan_format, scenario_format
from scripts.reference.installation import permissions, values
from scripts.reference.kinds import kinds
from scripts.reference.runtime import endpoint_list, event_list, log_list, metric_list, run_settings
from scripts.reference.words import KOREAN, Words

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES: dict[str, Callable[[Words], str]] = {
    "commands": commands,
    "kinds": kinds,
    "settings": run_settings,
    "values": values,
    "permissions": permissions,
    "metrics": metric_list,
    "events": event_list,
    "logs": log_list,
    "endpoints": endpoint_list,
    "plan": plan_format,
    "scenarios": scenario_format,
}
_ROW = re.compile(r"(?m)^\| `([A-Z_]+)` \| (\w+) \| .* \|$")


def pages(say: Words) -> dict[Path, str]:
    """Every page in one language, and the Korean rows of the reasons, which the catalogue translates."""
    suffix = ".md" if say.language == "en" else ".ko.md"
    texts = {DOCS / "reference" / f"{name}{suffix}": draw(say) for name, draw in PAGES.items()}
    reasons = DOCS / f"reasons{suffix}"
    if reasons.exists():
        texts[reasons] = _ROW.sub(lambda match: _reason(say, match), reasons.read_text())
    return texts


def _reason(say: Words, match: re.Match[str]) -> str:
    reason = REASONS[match[1]]
    return f"| `{reason.code}` | {reason.kind} | {_plain(say(reason.text))} | {_plain(say(reason.remedy))} |"


def _plain(text: str) -> str:
    """Without the marks of particles, as in `{name:을}`."""
    return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", text)


def main(arguments: list[str]) -> int:
    english, korean = Words("en"), Words("ko")
    texts = {**pages(english), **pages(korean)}
    if "--missing" in arguments:
        print(yaml.safe_dump(dict.fromkeys(korean.missing, ""), allow_unicode=True, width=10_000, sort_keys=False))
        return 0
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if "--check" not in arguments:
        for path in stale:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path])
        stale = []
    for path in stale:
        print(
            f"{path.relative_to(ROOT)} is not as the code says; run python scripts/build_reference.py", file=sys.stderr
        )
    for text in korean.missing:
        print(f"no Korean for {text!r}; add it to {KOREAN.relative_to(ROOT)}", file=sys.stderr)
    return 1 if stale or korean.missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
