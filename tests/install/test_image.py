"""The image: locked, the same bytes twice, small, without a shell, and its programs start as an ordinary user."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from scripts import build_image

ROOT = Path(__file__).parents[2]


def test_every_requirement_is_locked_with_hashes() -> None:
    """And the locks are those of pyproject.toml."""
    for name in ("run", "lab", "test"):
        text = (ROOT / "requirements" / f"{name}.lock").read_text()
        packages = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", text, re.MULTILINE)
        assert len(packages) > 20
        blocks = re.split(r"^(?=[A-Za-z0-9._-]+(?:\[[^]]*\])?==)", text, flags=re.MULTILINE)[1:]
        assert [block.split("==")[0] for block in blocks if "--hash=sha256:" not in block] == []
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(declared) > 10
    wanted = [re.split(r"[<>=\[ ;]", name)[0].lower().replace(".", "-") for name in declared]
    locked = "\n" + (ROOT / "requirements" / "run.lock").read_text()
    assert [name for name in wanted if f"\n{name}==" not in locked] == []


def test_no_boto3_is_allowed_that_lacks_a_parameter_of_create_fleet() -> None:
    """One that lacks it refuses the launch itself (ParamValidationError); the tests run with 1.44."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [name for name in declared if name.startswith("boto3")]
    oldest = re.fullmatch(r"boto3>=(\d+)\.(\d+)", bound)
    assert oldest is not None and (int(oldest[1]), int(oldest[2])) >= (1, 44)


def test_both_architectures_are_locked_alike() -> None:
    amd64, arm64 = build_image.locked("amd64"), build_image.locked("arm64")
    assert amd64.keys() == arm64.keys() == set(build_image.PACKAGES)
    assert {len(digest) for _, digest in (*amd64.values(), *arm64.values())} == {64}


def test_the_image_knows_every_aws_service_that_is_called() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "dovetail").rglob("*.py") if "/lab/" not in str(path))
    called = set(re.findall(r'\b(?:calls|_calls|optional)(?:\.all|\.pages)?\(\s*(?:account, )?"([a-z0-9-]+)",', source))
    called |= set(re.findall(r'\b(?:Call|boto3\.client)\(\s*"([a-z0-9-]+)"', source))
    assert {"ec2", "iam", "events"} <= called
    assert called - set(build_image.SERVICES) == set()


def test_the_programs_are_commands() -> None:
    from dovetail.cli.main import COMMANDS

    assert {words[0] for words in build_image.PROGRAMS.values() if words} <= COMMANDS.keys()
    shown = {path.name: path.read_text() for path in (ROOT / "image" / "programs").iterdir()}
    for name, words in build_image.PROGRAMS.items():
        if words:
            assert f"dovetail {' '.join(words)} " in shown[name.removeprefix("vpa-")]


def test_a_tar_is_the_same_whatever_the_order() -> None:
    files: build_image.Files = {"b/x": (0o644, b"1"), "a": (0o755, b"2"), "c": (0, "a")}
    other = dict(reversed(files.items()))
    assert build_image.tarred(files) == build_image.tarred(other)
    with tarfile.open(fileobj=io.BytesIO(build_image.tarred(files))) as tar:
        assert [entry.name for entry in tar] == ["a", "b", "b/x", "c"]
        assert {(entry.uid, entry.mtime) for entry in tar.getmembers()} == {(0, 0)}


class Image:
    """An unpacked archive."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.folder = folder
        with tarfile.open(archive) as tar:
            self._blobs = {entry.name: build_image._content(tar, entry) for entry in tar if entry.isfile()}
        self.index: dict[str, Any] = json.loads(self._blobs["index.json"])
        self.manifest = json.loads(self.blob(self.index["manifests"][0]))
        self.config = json.loads(self.blob(self.manifest["config"]))
        self.layers = [gzip.decompress(self.blob(layer)) for layer in self.manifest["layers"]]
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                tar.extractall(folder, filter="tar")

    def blob(self, described: dict[str, Any]) -> bytes:
        content = self._blobs["blobs/sha256/" + described["digest"].removeprefix("sha256:")]
        assert hashlib.sha256(content).hexdigest() == described["digest"].removeprefix("sha256:")
        return content

    def command(self, *words: str) -> list[str]:
        """Inside, as the image's own user where that can be had."""
        if os.geteuid() == 0:
            return [_tool("chroot"), "--userspec=65532:65532", str(self.folder), *words]
        return [_tool("unshare"), "--user", "--map-root-user", _tool("chroot"), str(self.folder), *words]

    def run(self, *words: str) -> str:
        ran = subprocess.run(self.command(*words), capture_output=True, text=True, check=False, env={"PATH": "/"})
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def _tool(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    assert found is not None, f"{name} is not installed"
    return found


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Built twice, by processes of their own."""
    made = []
    for number in (1, 2):
        folder = tmp_path_factory.mktemp(f"image{number}")
        subprocess.run([sys.executable, "scripts/build_image.py", "--output", folder], cwd=ROOT, check=True,
                       env={**os.environ, "PYTHONHASHSEED": str(number)}, stdout=subprocess.DEVNULL)  # fmt: skip
        made.append(next(folder.glob("*.oci.tar")))
    return made


@pytest.fixture(scope="module")
def image(archives: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("root")
    folder.chmod(0o755)
    return Image(archives[0], folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_same_tree_gives_the_same_bytes(archives: list[Path]) -> None:
    first, second = (hashlib.sha256(path.read_bytes()).hexdigest() for path in archives)
    assert first == second


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_image_is_small_and_has_no_shell(image: Image) -> None:
    assert sum(map(len, image.layers)) < build_image.MAX_BYTES
    names = {path.name for folder in ("usr/bin", "usr/sbin", "bin") for path in (image.folder / folder).glob("*")}
    assert names == {"python3.11"}
    assert image.config["config"]["User"] == "65532:65532"
    assert image.config["config"]["Entrypoint"] == ["/usr/local/bin/dovetail"]
    assert image.config["config"]["Cmd"] == ["run"]
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in image.layers]
    assert image.config["rootfs"]["diff_ids"] == diff_ids
    titles = [row["annotations"]["org.opencontainers.image.ref.name"] for row in image.index["manifests"]]
    assert len(titles) == 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_sbom_lies_inside_and_beside_and_names_every_part(archives: list[Path], image: Image) -> None:
    inside = (image.folder / "usr/share/sbom/dovetail.cdx.json").read_bytes()
    assert inside == next(archives[0].parent.glob("*.cdx.json")).read_bytes()
    document = json.loads(inside)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    kinds = [component["purl"].split("/")[0] for component in document["components"]]
    assert kinds.count("pkg:deb") == len(build_image.PACKAGES)
    assert kinds.count("pkg:pypi") == len(build_image.wheels("amd64")) > 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_program_starts_inside(image: Image) -> None:
    assert image.run("/usr/local/bin/dovetail", "version").startswith("dovetail ")
    assert "--cluster-name" in image.run("/usr/local/bin/dovetail", "run", "--help")
    assert "karpenter.sh" in image.run("/dovetail", "crds", "nodepools")
    for program in ("cluster-autoscaler", "recommender", "updater", "admission-controller"):
        assert "--" in image.run(f"/{program}", "--help")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_controller_runs_inside_against_a_lab(image: Image, tmp_path: Path) -> None:
    """`dovetail up` on this host, `dovetail run` in the image as its own user, until it is ready."""
    config = tmp_path / "kubeconfig.yaml"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    up = subprocess.Popen(
        [sys.executable, "-m", "dovetail.cli", "up", "--no-autoscaler", "--port", str(_free()), "--kubeconfig", config],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    inside = None
    try:
        _until(config.exists)
        definitions = subprocess.run([sys.executable, "-m", "dovetail.cli", "crds"], capture_output=True, check=True)
        _until(lambda: subprocess.run(
            [sys.executable, "-m", "dovetail.cli", "kubectl", "--kubeconfig", config, "apply", "-f", "-"],
            input=definitions.stdout, capture_output=True, check=False).returncode == 0)  # fmt: skip
        target = image.folder / "tmp" / "kubeconfig.yaml"
        target.write_bytes(config.read_bytes())
        target.chmod(0o644)
        health, metrics = _free(), _free()
        inside = subprocess.Popen(
            image.command("/usr/local/bin/dovetail", "run", "--cloud", "simulated", "--kubeconfig",
                          "/tmp/kubeconfig.yaml", "--health-probe-port", str(health), "--metrics-port", str(metrics)),
            env={"PATH": "/"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _until(lambda: _answers(f"http://127.0.0.1:{health}/readyz"))
        if os.geteuid() == 0:
            assert f"Uid:\t{build_image.USER}\t" in Path(f"/proc/{inside.pid}/status").read_text()
    finally:
        for process in (inside, up):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def _free() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2, context=ssl._create_unverified_context()):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _until(test: Any, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.5)
