"""Builds the catalogue of Korean texts from the source, and says what is not translated yet.

    python scripts/build_messages.py            # update dovetail.po, compile dovetail.mo, list what is missing
    python scripts/build_messages.py --check    # write nothing; fail where either is not what the source asks for

Texts come from the calls `message`, `plural`, `source` and `translated`, from the help of every command, and from
Click's own sentences. An entry that no source asks for any more is dropped; nothing is guessed from similar ones.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import string
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import click
from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from dovetail.autoscalers.node_groups.flags import FLAGS
from dovetail.autoscalers.vpa.settings import TABLES
from dovetail.cli.main import COMMANDS, LANGUAGE_HELP
from dovetail.cli.main import main as main_command
from dovetail.language import CLICK_DOMAIN, DOMAIN, LOCALES
from dovetail.model.kinds.crds import definitions
from dovetail.model.reasons import REASONS

SOURCE = LOCALES.parents[1]
PO = LOCALES / "ko" / "LC_MESSAGES" / f"{DOMAIN}.po"
MO = PO.with_suffix(".mo")
CLICK_MO = PO.with_name(f"{CLICK_DOMAIN}.mo")
#: Functions whose first arguments are texts, and how many of them; `t` is the language of a page.
KEYWORDS = {"message": 1, "plural": 2, "source": 1, "translated": 1, "t": 1}
CLICK_KEYWORDS = {"_": 1, "ngettext": 2}

#: No dates and no names in it: the same texts are the same bytes.
HEADER = """# Korean texts of Dovetail: python scripts/build_messages.py
msgid ""
msgstr ""
"Language: ko\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""

_NO_DATE = datetime(2000, 1, 1, tzinfo=UTC)

Text = str | tuple[str, ...]


def asked() -> set[Text]:
    """Every text of the source that a person reads."""
    texts = _extracted(SOURCE, KEYWORDS) | of_click()
    texts.update(_help())
    for reason in REASONS.values():
        texts.update((reason.text, reason.remedy))
    for flag in FLAGS.values():
        texts.add(flag.without_effect)
    for table in TABLES.values():
        texts.update(text for flag in table for text in (flag.meaning, flag.idle))
    texts.update(_rules())
    return {text for text in texts if text}


def of_click() -> set[Text]:
    """Click's own sentences, with the word that it keeps in a table."""
    return _extracted(Path(inspect.getfile(click)).parent, CLICK_KEYWORDS) | {"required"}


def _extracted(root: Path, keywords: Mapping[str, int]) -> set[Text]:
    """The literal texts of these calls, also within f-strings, which Babel's extraction does not see before 3.12."""
    return {text for file in root.rglob("*.py") for text in _texts_of(ast.parse(file.read_bytes()), keywords)}


def _texts_of(module: ast.Module, keywords: Mapping[str, int]) -> Iterator[Text]:
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        arguments = node.args[: keywords.get(name, 0)]
        texts = tuple(a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str))
        if texts and len(texts) == keywords[name]:
            yield texts[0] if len(texts) == 1 else texts


def _rules() -> Iterator[str]:
    """What the rules of our kinds say when they are broken: the API server's answers, which lint explains."""
    pending: list[object] = list(definitions())
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for rule in node.get("x-kubernetes-validations") or ():
                yield str(rule.get("message") or "")
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _help() -> Iterator[str]:
    yield LANGUAGE_HELP
    yield from _help_of(main_command)
    for name, (module, line) in COMMANDS.items():
        yield line
        yield from _help_of(getattr(import_module(module), name.replace("-", "_")))


def _help_of(command: click.Command) -> Iterator[str]:
    yield from (inspect.cleandoc(text) for text in (command.help, command.short_help, command.epilog) if text)
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.help:
            yield parameter.help
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from _help_of(child)


def read(path: Path = PO) -> Catalog:
    if not path.exists():
        return Catalog(locale="ko", domain=DOMAIN)
    with path.open("rb") as file:
        return read_po(file, locale="ko", domain=DOMAIN)


def updated(catalogue: Catalog, texts: set[Text]) -> Catalog:
    """The catalogue with exactly these texts, and the translations that it had."""
    fresh = Catalog(locale="ko", domain=DOMAIN)
    fresh.creation_date = fresh.revision_date = _NO_DATE
    for text in texts:
        old = catalogue.get(text[0] if isinstance(text, tuple) else text)
        translation = old.string if old is not None and old.id == text else ""
        fresh.add(text, translation or ("" if isinstance(text, str) else ("",)), flags=old.flags if old else ())
    return fresh


def faults(catalogue: Catalog) -> Iterator[str]:
    """Texts without a translation, marked as uncertain, or with other facts than their source."""
    for entry in _entries(catalogue):
        shown = entry.id if isinstance(entry.id, str) else entry.id[0]
        korean = entry.string if isinstance(entry.string, str) else entry.string[0]
        if not korean:
            yield f"untranslated: {shown!r}"
        elif "fuzzy" in entry.flags:
            yield f"fuzzy: {shown!r}"
        elif difference := _differing_facts(entry.id, korean):
            yield f"facts differ ({', '.join(sorted(difference))}): {shown!r}"


def _entries(catalogue: Catalog) -> Iterator[Message]:
    return (entry for entry in catalogue if entry.id)


def _differing_facts(text: Text, korean: str) -> frozenset[str]:
    """Facts that a form of the source has and the translation lacks, or that no form has. Help is not a template."""
    try:
        forms = [_facts(form) for form in ((text,) if isinstance(text, str) else text)]
    except ValueError:
        return frozenset()
    shown = _facts(korean)
    return (frozenset.intersection(*forms) - shown) | (shown - frozenset.union(*forms))


_PERCENT = re.compile(r"%\(\w+\)s")


def _facts(text: str) -> frozenset[str]:
    names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
    return frozenset(names | set(_PERCENT.findall(text)))


def encoded(catalogue: Catalog) -> dict[Path, bytes]:
    """The files: `.po` for people, sorted so that changes merge, and `.mo` for the commands and for Click."""
    po = io.BytesIO()
    write_po(po, catalogue, width=120, no_location=True, omit_header=True, sort_output=True)
    mine = of_click()
    return {
        PO: HEADER.encode() + po.getvalue(),
        MO: _compiled(catalogue),
        CLICK_MO: _compiled(updated(catalogue, {text for text in mine if text})),
    }


def _compiled(catalogue: Catalog) -> bytes:
    mo = io.BytesIO()
    write_mo(mo, catalogue)
    return mo.getvalue()


def main(arguments: list[str]) -> int:
    catalogue = updated(read(), asked())
    files = encoded(catalogue)
    problems = list(faults(catalogue))
    if "--check" in arguments:
        stale = [path.name for path, content in files.items() if not path.exists() or path.read_bytes() != content]
        problems += [f"{name} is not what the source asks for: python scripts/build_messages.py" for name in stale]
    else:
        PO.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)
    for problem in problems:
        print(problem)
    print(f"{sum(1 for _ in _entries(catalogue))} texts, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
