"""Completion in real shells, with names of the cluster's objects, and `kubectl dovetail` with the real kubectl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dovetail.cli import completion
from dovetail.cli.explain_subjects import KINDS
from dovetail.cli.kubectl import binary
from dovetail.cli.kubectl_plugin import arranged, suggestions, with_namespace
from dovetail.cli.main import COMMANDS, main

PODS = {"items": [{"metadata": {"name": name, "namespace": "shop"}} for name in ("web-0", "web-1", "worker")]}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path.startswith("/api/v1/namespaces/shop/pods")
        body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, **PODS})
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode() if found else b"{}")

    def log_message(self, *args: object) -> None:
        return None


def kubeconfig(path: Path, server: str) -> Path:
    context = {"cluster": "c", "user": "u", "namespace": "shop"}
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(body))
    return path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A cluster that lists pods, and our programs in PATH."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module, function in (
        ("dovetail", "main", "main"),
        ("kubectl-dovetail", "kubectl_plugin", "main"),
        ("kubectl_complete-dovetail", "kubectl_plugin", "complete"),
    ):
        script = folder / name
        script.write_text(f"#!{sys.executable}\nfrom dovetail.cli.{module} import {function}\n{function}()\n")
        script.chmod(0o755)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = kubeconfig(folder / "config", f"http://127.0.0.1:{server.server_port}")
    yield {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "KUBECONFIG": str(config),
        "HOME": str(folder),
    }
    server.shutdown()
    server.server_close()


def completed(shell: str, words: list[str], environment: dict[str, str]) -> list[str]:
    """What a shell suggests for the last word."""
    line = " ".join(words)
    scripts = {
        "bash": f'eval "$(dovetail completion bash)"; COMP_WORDS=({line}); [ "{words[-1]}" ] || COMP_WORDS+=("");'
        f' COMP_CWORD={len(words) - 1}; _dovetail_completion dovetail; printf "%s\\n" "${{COMPREPLY[@]}}"',
        "zsh": 'autoload -U compinit; compinit -u; eval "$(dovetail completion zsh)"; whence _dovetail_completion'
        f" >/dev/null && COMP_WORDS='{line}' COMP_CWORD={len(words) - 1} _DOVETAIL_COMPLETE=zsh_complete dovetail",
        "fish": f'dovetail completion fish | source; complete -C "{line}"',
    }
    ended = subprocess.run(
        [shell, "-c", scripts[shell]], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    if shell == "zsh":
        return lines[1::3]  # type, value and help of each suggestion
    return [line.split("\t")[0] for line in lines]


SHELLS = [shell for shell in ("bash", "zsh", "fish") if shell == "bash" or shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_and_names_of_objects(shell: str, environment: dict[str, str]) -> None:
    assert completed(shell, ["dovetail", "ex"], environment) == ["explain"]
    assert completed(shell, ["dovetail", "explain", "-n", "shop", "pod/web"], environment) == ["pod/web-0", "pod/web-1"]
    assert completed(shell, ["dovetail", "explain", "-n", "shop", "pods", "wo"], environment) == ["worker"]


def test_without_a_cluster_there_is_no_suggestion_and_no_message(environment: dict[str, str], tmp_path: Path) -> None:
    closed = {**environment, "KUBECONFIG": str(kubeconfig(tmp_path / "closed", "http://127.0.0.1:1"))}
    assert completed("bash", ["dovetail", "explain", "pod/web"], closed) in ([], [""])
    broken = {**environment, "KUBECONFIG": str(tmp_path / "none")}
    assert completed("bash", ["dovetail", "explain", "pod/web"], broken) in ([], [""])


def test_each_shell_has_a_script() -> None:
    for shell in completion.SHELLS:
        said = CliRunner().invoke(main, ["completion", shell])
        assert said.exit_code == 0
        assert completion.VARIABLE in said.stdout


def test_completed_kinds_are_those_of_explain() -> None:
    for short, kind in completion.SHORT_NAMES.items():
        assert KINDS[short] == kind
    assert set(completion.resources()) <= set(KINDS)


def test_commands_are_suggested_with_their_help() -> None:
    assert suggestions([], "doc") == [f"doctor\t{COMMANDS['doctor'][1]}"]
    assert "--only" in {row.split("\t")[0] for row in suggestions(["doctor"], "--on")}


def test_flags_of_kubectl_stand_before_or_after_the_command() -> None:
    assert arranged(["--context", "c", "-n", "shop", "explain", "pod/x"]) == [
        *("explain", "--context", "c", "--namespace", "shop", "pod/x"),
    ]
    assert arranged(["--kubeconfig=k", "doctor", "--pre"]) == ["doctor", "--kubeconfig", "k", "--pre"]
    assert arranged(["plan", "-f", "x"]) == ["plan", "-f", "x"]


def test_explain_looks_in_the_namespace_of_the_context(environment: dict[str, str]) -> None:
    config = environment["KUBECONFIG"]
    words = ["explain", "--kubeconfig", config, "pod/x"]
    assert with_namespace(words) == [*words, "--namespace", "shop"]
    assert with_namespace([*words, "-n", "other"]) == [*words, "-n", "other"]
    assert with_namespace(["doctor"]) == ["doctor"]


def test_kubectl_starts_and_completes_the_plugin(environment: dict[str, str]) -> None:
    kubectl = binary()
    assert kubectl is not None

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [kubectl, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    said = run("dovetail", "--context", "nowhere", "explain", "pod/x")
    assert said.returncode == 2
    assert "nowhere" in said.stderr
    assert "doctor" in run("dovetail", "--help").stdout
    names = [line.split("\t")[0] for line in run("__complete", "dovetail", "explain", "pod/web").stdout.splitlines()]
    assert names == ["pod/web-0", "pod/web-1", ":4"]
