"""Fails where code, comments, messages or docs use a retired word; the field has another one.

The list is the other side of the glossary in docs/architecture.md: a retired word, and what to write instead.
Between the marks `<!-- glossary -->` and `<!-- /glossary -->` a document may name retired words.
Identifiers are split into words (`NodeShelf`, `node_shelf`), so that `dashboard` does not contain `board`.
In the source and the scripts a local variable or parameter also names what it holds: not `each`, `found`, `known`.
Over the whole tree, a public class has a name of its own; only views of one API type share the API's name.

    python scripts/check_words.py            # the whole tree
    python scripts/check_words.py src/x.py   # some files
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Retired word → what to write. A word is matched whole, in any case, also as a part of an identifier.
RETIRED: dict[str, str] = {
    "ailing": "unhealthy",
    "ailment": "node condition",
    "anybody": "name the component",
    "anybodys": "name the component",
    "bereaved": "lost required affinity",
    "bought": "launched",
    "buying": "launching",
    "census": "candidate cache",
    "company": "co-located pods",
    "cure": "remedy",
    "cures": "remedies",
    "everybody": "name the component",
    "everybodys": "name the component",
    "grounds": "validation",
    "guest": "pod to insert",
    "huddle": "affinity",
    "ladder": "relaxation levels",
    "ledger": "decision history",
    "machine": "Node, NodeClaim or instance",
    "machines": "Nodes, NodeClaims or instances",
    "meddler": "actor",
    "meddlers": "actors",
    "menu": "offering frontier",
    "mirror": "cluster state",
    "nobody": "name the component",
    "nobodys": "name the component",
    "occasion": "trigger",
    "occasions": "triggers",
    "promise": "nomination",
    "promised": "nominated",
    "promises": "nominations",
    "roster": "index",
    "rung": "relaxation level",
    "rungs": "relaxation levels",
    "seam": "interface",
    "seams": "interfaces",
    "seller": "cloud provider",
    "shelf": "catalog",
    "shields": "do-not-disrupt",
    "somebody": "name the component",
    "somebodys": "name the component",
    "stance": "node filter",
    "told": "reported",
    "undertaker": "finalizer",
    "whoever": "name the component",
    "wish": "preference",
    "wishes": "preferences",
    "wishful": "preferred",
    "witness": "observer",
    "yardstick": "baseline",
}

#: Locals and parameters that do not say what they hold, in these folders. Fields and methods may have these names.
VAGUE_LOCALS = frozenset({"asked", "at", "each", "found", "known", "one", "told", "wanted"})
NAMED_LOCALS = ("src/", "scripts/")

#: Types of the Kubernetes API, read by several packages as far as each needs them: one thing, so one name.
API_TYPES = frozenset(
    {
        *(
            "Affinity",
            "Condition",
            "Container",
            "ContainerMetrics",
            "ContainerPort",
            "ContainerState",
            "ContainerStatus",
        ),
        *("Event", "LeaseSpec", "Meta", "NodeAffinity", "NodeSpec", "NodeStatus", "Pod", "PodMetrics", "PodSpec"),
        *(
            "PodStatus",
            "Probe",
            "Taint",
            "TargetRef",
            "TemplateRef",
            "Terminated",
            "Toleration",
            "Volume",
            "VolumeMount",
        ),
        # The v1alpha5 kind, and the controller that Karpenter calls so.
        "Provisioner",
    }
)

#: Machine is the v1alpha5 kind; these files are about it.
MACHINE_KIND = (
    "charts/dovetail-crd/definitions/karpenter.sh_machines.yaml",
    "charts/dovetail/crds/karpenter.sh_machines.yaml",
    "charts/dovetail/templates/_rules.tpl",
    "docs/reference/",
    "scripts/reference/",
    "src/dovetail/controllers/legacy/",
    "src/dovetail/controllers/manager.py",
    "src/dovetail/install/rbac.py",
    "src/dovetail/model/kinds/",
    "tests/controllers/test_legacy_provisioner.py",
    "tests/kinds/",
)
#: Where a retired word is the right one: this file, its test, and the licence.
EXEMPT = ("scripts/check_words.py", "tests/scripts/test_check_words.py", "LICENSE")
#: Recorded answers and data of others are not ours to reword.
DATA = (
    "tests/data/",
    "tests/conformance/corpus/",
    "tests/conformance/recordings/",
    "tests/clients/typed/",
    "src/dovetail/cloud/data/",
    "src/dovetail/lab/apiserver/data/",
    "src/dovetail/web/assets/htmx",
    "src/dovetail/web/assets/uPlot",
    "tests/web/vendor/",
)
SUFFIXES = (".py", ".md", ".yaml", ".yml", ".toml", ".json", ".tpl", ".txt", ".css", ".js", ".html")

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
#: Kubernetes' own names that contain one: "mirror pod" is a static pod's image in the API server.
#: Former scenario keys, which stay accepted. JavaScript's own class.
_ALLOWED = re.compile(
    r"new Promise\(|mirror[ _-]?pods?|skip-mirror|ignore_mirrors|usr/share.*menu|boughtAt(Least|Most)|"
    r"kubernetes\.io/config\.mirror|endpoints?[ _-]?(slice )?mirror\w*|mirror(s|ed|ing)? (the|a|of)",
    re.IGNORECASE,
)
#: The kind by its names, its plural in requests, the JSON keys of `plan -o json`, former keys and fault kinds, which
#: stay accepted, a NodeInfo's machine id, machine images, and the kubelet's words.
_MACHINE = re.compile(
    r"""(?!^Machine$)\bMachines?\b|MachineViews|\bMACHINES\b|(get|,)\s?machines\b|^["']machines?["']$|`machines?`|"""
    r"""machine-gone|(half|empty)-machines|\bmachines: 2|machineID|virtual machines|present on machine|"machines": \["""
)
_GLOSSARY = re.compile(r"<!-- glossary -->.*?<!-- /glossary -->", re.DOTALL)


def main(arguments: list[str]) -> int:
    paths = arguments or _tracked()
    findings = [finding for path in paths for finding in check(path)]
    if not arguments:
        findings.extend(shared_class_names(path for path in paths if path.startswith("src/") and path.endswith(".py")))
    for finding in findings:
        print(finding)
    if findings:
        print(
            f"{len(findings)} retired or shared names; the glossary in docs/architecture.md has the field's",
            file=sys.stderr,
        )
    return 1 if findings else 0


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listed if path.endswith(SUFFIXES) and not path.startswith((*EXEMPT, *DATA))]


def check(path: str) -> Iterator[str]:
    """Findings in one file as `path:line: word: write replacement`; a module's own name counts too."""
    for word in _words(path):
        if word in RETIRED and not _is_kind(word, path):
            yield f"{path}:1: file name has {word!r}: write {RETIRED[word]!r}"
    text = _GLOSSARY.sub(lambda match: "\n" * match.group().count("\n"), Path(path).read_text())
    if not RETIRED.keys().isdisjoint(_words(text)):  # most files need not be cut into tokens
        yield from _retired_words(path, text)
    if path.endswith(".py") and path.startswith(NAMED_LOCALS):
        for number, name in sorted(_vague_locals(ast.parse(text))):
            yield f"{path}:{number}: local {name!r}: name what it holds"


def _retired_words(path: str, text: str) -> Iterator[str]:
    pieces = _python(text) if path.endswith(".py") else enumerate(text.splitlines(), 1)
    for number, piece in pieces:
        for word in _retired(piece):
            if not _is_kind(word, path):
                yield f"{path}:{number}: {word!r}: write {RETIRED[word]!r}"


def shared_class_names(paths: Iterable[str]) -> Iterator[str]:
    """Findings for public classes of one name in several modules that are not views of one API type."""
    modules: dict[str, list[str]] = {}
    for path in paths:
        for statement in ast.parse(Path(path).read_text()).body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                modules.setdefault(statement.name, []).append(f"{path}:{statement.lineno}")
    for name, places in sorted(modules.items()):
        if len(places) > 1 and name not in API_TYPES:
            yield f"{places[-1]}: class {name!r} stands also in {', '.join(places[:-1])}: name one after its object"


def _vague_locals(node: ast.AST, in_function: bool = False) -> set[tuple[int, str]]:
    """Line and name of the vague names that functions, lambdas and comprehensions bind; not those of a class body."""
    vague: set[tuple[int, str]] = set()
    scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.comprehension)
    in_function = (in_function or scope) and not isinstance(node, ast.ClassDef)
    for child in ast.iter_child_nodes(node):
        if in_function and isinstance(child, ast.arg) and child.arg in VAGUE_LOCALS:
            vague.add((child.lineno, child.arg))
        if (
            in_function
            and isinstance(child, ast.Name)
            and isinstance(child.ctx, ast.Store)
            and child.id in VAGUE_LOCALS
        ):
            vague.add((child.lineno, child.id))
        vague |= _vague_locals(child, in_function)
    return vague


def _is_kind(word: str, path: str) -> bool:
    return word.startswith("machine") and path.startswith(MACHINE_KIND)


def _python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


@functools.cache  # a tree repeats its identifiers
def _retired(piece: str) -> tuple[str, ...]:
    """The retired words of a piece, without the names that are others' own."""
    return tuple(word for word in _words(_MACHINE.sub(" ", _ALLOWED.sub(" ", piece))) if word in RETIRED)


def _words(text: str) -> Iterator[str]:
    return (match.group().lower() for match in _WORD.finditer(text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
