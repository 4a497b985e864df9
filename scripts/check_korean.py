"""Looks for English where a reader of Korean would see it.

    python scripts/check_korean.py            # both checks; names what is left, and fails if anything is

The source: an English text that is printed, or raised as an error for the reader, without `dovetail.language`.
The commands: each is run with `--lang ko` on good and bad input, and what it prints is searched for three English words
in a row, outside of code, names, codes, quoted values, flags and paths.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "dovetail"

#: What prints a text, or raises one that a command prints.
SPEAKING = frozenset(
    (
        "echo", "secho", "print", "Problem", "UsageError", "BadParameter", "ClickException", "ConfigError",
        "ConversionError", "DiscoveryError", "NotOneLab", "RefusedError", "ScenarioError", "StartError", "Unknown",
        "UnknownType", "ValuesError",
    )
)  # fmt: skip
#: (file, words of the text): what stays English, and why.
ALLOWED: dict[tuple[str, str], str] = {}
#: Log lines stay English.
LOGS = frozenset(("controllers/log_output.py",))
_WORDS = re.compile(r"(?<![\w./{-])[a-z]{2,}(?: [a-z]{2,})+(?![\w/}-])")


def unspoken(source: Path = SOURCE) -> Iterator[str]:
    """English literals that are printed or raised without a translation."""
    for path in sorted(source.rglob("*.py")):
        name = str(path.relative_to(source))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or _called(node) not in SPEAKING or not node.args:
                continue
            for text in _literals(node.args[0]):
                words = _WORDS.search(text)
                if words is not None and (name, words[0]) not in ALLOWED:
                    yield f"{name}:{node.lineno}: {words[0]!r} is not passed to message()"


def untranslated_facts(source: Path = SOURCE) -> Iterator[str]:
    """English among the facts of a translated text: a literal, a template that `source` marks, the system's words.

    An error as a fact is no finding: the Korean formatter asks `recognized` for its words.
    """
    for path in sorted(source.rglob("*.py")):
        name = str(path.relative_to(source))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        marked = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called(node.value) == "source"
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) in ("message", "plural"):
                for keyword in node.keywords:
                    for fact in _english_facts(keyword.value, marked):
                        yield f"{name}:{node.lineno}: the fact {keyword.arg} is {fact}, which is not translated"
            elif isinstance(node, ast.JoinedStr) and name not in LOGS and _quotes_system(node):
                yield f"{name}:{node.lineno}: the system's words are not translated; use system_error()"


def _quotes_system(text: ast.JoinedStr) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "strerror" for part in ast.walk(text))


def _english_facts(fact: ast.expr, marked: set[str]) -> Iterator[str]:
    if isinstance(fact, ast.Name) and fact.id in marked:
        yield fact.id
    elif isinstance(fact, ast.Attribute) and fact.attr == "strerror":
        yield ast.unparse(fact)
    for text in _literals(fact):
        if (words := _WORDS.search(text)) is not None:
            yield repr(words[0])


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _literals(node: ast.expr) -> Iterator[str]:
    """The texts of an argument, without those of calls in it: they are the called function's."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.IfExp):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _literals(child)


# What a reader sees

#: What is no sentence: code, quoted values, flags, assignments, paths, addresses, field names.
_CODE = re.compile(
    r"사용법:.*|`[^`]*`|\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]*\]|\{[^}\n]*\}|<[^>\n]*>|--[\w-]+(?:[= ][\w.,/=-]+)?"
    r"|\b(?:kubectl|aws|dovetail|helm|eksctl|envsubst|pip|make|eval|chmod|export|source)\b[^,;()가-힣\n]*"
    r"|\S*[/_=:@$]\S*|\b\w+(?:[.-]\w+)+\b|\b[A-Z]\w*\b|#.*"
)
#: A semicolon stands between two texts, which may be of two programs.
_SENTENCE = re.compile(r"\b[a-z]{2,}(?:,? [a-z]{2,}){2,}\b")
#: A list of names is no sentence.
_LIST = re.compile(r"[a-z]+(?: [a-z]+)?(?:, [a-z]+(?: [a-z]+)?)+")


def english_sentences(text: str) -> list[str]:
    """Three English words or more in a row that are neither code nor names."""
    texts = []
    for line in text.splitlines():
        sentences = (match[0] for match in _SENTENCE.finditer(_CODE.sub(" | ", line)))
        texts += [text for text in sentences if not _LIST.fullmatch(text)]
    return texts


#: Command lines that are wrong in one word, or need no input.
_WRONG_LINES = (
    "history --since yesterday",
    "history --file /nope",
    "doctor --only D99",
    "doctor --collect x --from y",
    "doctor --from /nope",
    "doctor --rights",
    "install --take-over --hand-back",
    "install --values /nope",
    "install --set broken",
    "uninstall --drain --keep-nodes",
    "iam --cluster x",
    "manifests nope",
    "simulate",
    "simulate --random 7 --check",
    "compare /nope",
    "compare --setup nope",
    "crds nope",
    "crds --webhook x",
    "crds --ca /nope",
    "fault nope --name no-such-lab",
    "shadow report --history /nope",
    "run --feature-gates Nope=true --log-output-paths /nope/x",
    "cluster-autoscaler --scan-interval=soon",
    "vpa recommender --recommender-interval=soon",
    "webhook",
    "completion tcsh",
    "frobnicate",
    "plna",
    "version",
)


def cases(folder: Path) -> Iterator[tuple[str, ...]]:
    """Command lines: every help page, and each command on good and bad input."""
    from dovetail.cli.main import COMMANDS

    for name in COMMANDS:
        if name == "kubectl":
            continue  # it becomes kubectl, whose words are its own
        yield (name, "--help")
        yield (name, "--no-such-flag")
    for program in ("recommender", "updater", "admission-controller"):
        yield ("vpa", program, "--help")
    for command in ("install", "shadow", "install vpa", "install cluster-autoscaler", "shadow report"):
        yield (*command.split(), "--help")
    files = _BadFiles(folder)
    yield from _cases_of_files(files)
    yield from _cases_of_clusters(folder, files)
    yield from _cases_of_labs(files)
    yield from (tuple(line.split()) for line in _WRONG_LINES)


class _BadFiles:
    """Files that no command takes: empty, broken YAML, plain words, and a pod with impossible requests."""

    def __init__(self, folder: Path) -> None:
        self.empty = self._written(folder, "empty.yaml", "")
        self.broken = self._written(folder, "broken.yaml", "kind: [Pod\nmetadata: {name: x")
        self.words = self._written(folder, "words.yaml", "words")
        self.pod = self._written(
            folder,
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: lonely}\n"
            "spec: {containers: [{name: c, image: i, resources: {requests: {cpu: -1, memory: x}}}]}\n",
        )

    @staticmethod
    def _written(folder: Path, name: str, text: str) -> str:
        (folder / name).write_text(text)
        return str(folder / name)


def _cases_of_files(files: _BadFiles) -> Iterator[tuple[str, ...]]:
    """Commands that read manifests."""
    examples = sorted(str(path) for path in (ROOT / "examples").glob("*.yaml"))
    for command in ("plan", "lint", "convert", "rightsize"):
        for file in ("/nope", files.empty, files.broken, files.words, files.pod):
            yield (command, "-f", file)
        for file in (*examples, str(ROOT / "examples")) if command != "convert" else ():  # which prints its input
            yield (command, "-f", file)
        yield (command,)
    yield ("plan", "-v", "-f", str(ROOT / "examples"))
    yield ("plan", "--consolidate", "-f", str(ROOT / "examples"))
    yield ("plan", "-f", str(ROOT / "examples"), "--region", "nowhere")
    yield ("plan", "-f", str(ROOT / "examples"), "--deadline", "-1")
    yield ("plan", "-f", str(ROOT / "examples"), "--svg", "/nope/x.svg")
    for subject in ("pod/web", "pod/giant", "pod/nope", "node/x", "what/x", "pod/"):
        yield ("explain", subject, "-f", str(ROOT / "examples"), "-vv")
    yield ("explain", "pod/giant", "-f", str(ROOT / "examples"), "--what-if")
    for what_if in ("cpu=2", "cpu=x", "colour=red", "zone"):
        yield ("explain", "pod/giant", "-f", str(ROOT / "examples"), "--what-if", what_if)
    yield ("explain", "pod/giant", "-f", str(ROOT / "examples"), "--at", "12:00")


def _cases_of_clusters(folder: Path, files: _BadFiles) -> Iterator[tuple[str, ...]]:
    """Commands that read a cluster, without one."""
    for command in ("explain pod/x", "history", "doctor", "rightsize --observe 1h", "view", "dashboard", "uninstall"):
        yield (*command.split(), "--kubeconfig", str(folder / "no-kubeconfig"))
        yield (*command.split(), "--kubeconfig", files.words)
        yield (*command.split(), "--kubeconfig", files.broken)


def _cases_of_labs(files: _BadFiles) -> Iterator[tuple[str, ...]]:
    """Scenarios and labs."""
    for file in (
        "/nope",
        files.empty,
        files.broken,
        files.words,
        *map(str, sorted((ROOT / "scenarios").glob("*.yaml"))[:3]),
    ):
        yield ("simulate", file, "--check")
    for options in ("--zones xx", "--zones ,", "--nodes 0", "--recover", "--feature-gates X=true", "--config /nope"):
        yield ("up", *options.split())
    yield ("up", "--name", "Not A Name")
    for command in ("down", "env"):
        yield (command, "--name", "no-such-lab")


def answer(arguments: Sequence[str]) -> str:
    """What a command prints in Korean, on both outputs."""
    from click.testing import CliRunner

    from dovetail.cli.main import main as command

    result = CliRunner().invoke(command, [*arguments, "--lang", "ko"], env={"KUBECONFIG": os.devnull})
    raised = "" if result.exception is None or isinstance(result.exception, SystemExit) else repr(result.exception)
    return result.output + raised


def spoken() -> Iterator[str]:
    """English that commands print to a reader of Korean."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HOME=folder, XDG_STATE_HOME=folder, AWS_EC2_METADATA_DISABLED="true")
        for variable in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
            os.environ.pop(variable, None)
        for arguments in cases(Path(folder)):
            for sentence in dict.fromkeys(english_sentences(answer(arguments))):
                shown = " ".join(arguments).replace(folder, "").replace(str(ROOT) + "/", "")
                yield f"dovetail {shown}: {sentence!r}"


def main() -> int:
    lines = [*unspoken(), *untranslated_facts(), *spoken()]
    for line in lines:
        print(line)
    print(f"{len(lines)} English texts for a reader of Korean", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
