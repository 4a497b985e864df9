"""Build the OCI image without a container daemon: locked Debian packages, locked wheels, this tree.

    python scripts/build_image.py                     writes dist/dovetail-VERSION-amd64.oci.tar and its SBOM
    python scripts/build_image.py --arch arm64
    python scripts/build_image.py --lock              renews image/debian.lock from what apt knows

Packages come through apt and pip as this host has them set up, and are checked by their hashes. The same commit gives
the same bytes: entries are sorted, owned by root, and have one time stamp.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import hashlib
import io
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "image" / "debian.lock"
WHEELS = ROOT / "requirements" / "run.lock"
CACHE = Path(os.environ.get("DOVETAIL_CACHE") or Path.home() / ".cache" / "dovetail") / "image"
#: What Python and the wheels need of Debian; certificates, time zones, and the files that scanners read.
PACKAGES = (
    "base-files", "ca-certificates", "libbz2-1.0", "libc6", "libcrypt1", "libexpat1", "libffi8", "libgcc-s1",
    "liblzma5", "libpython3.11-minimal", "libpython3.11-stdlib", "libssl3", "libstdc++6", "libuuid1",
    "python3.11-minimal", "tzdata", "zlib1g",
)  # fmt: skip
PYTHON = "/usr/bin/python3.11"
SITE = "usr/local/lib/python3.11/dist-packages"
PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
USER = 65532
MAX_BYTES = 200 * 10**6
#: No shell, no package manager, nothing that only a person at a terminal reads.
LEFT_OUT = re.compile(
    r"^(?:s?bin|usr/s?bin/(?!python3\.11$)|usr/share/(?:doc/(?!.*/copyright$)|man|info|locale|lintian|bug|menu|perl5"
    r"|binfmts|applications|pixmaps|base-files|debconf)|etc/(?!ssl|os-release|debian_version|localtime|protocols)|var/"
    r"|usr/lib/python3\.11/(?:idlelib|lib2to3|tkinter|turtledemo|test|ensurepip|pydoc_data|lib-dynload/_(?:curses|tkinter"
    r"|sqlite3|dbm|gdbm))|usr/lib/x86_64-linux-gnu/gconv|usr/lib/aarch64-linux-gnu/gconv"
    r"|usr/share/zoneinfo/(?:right|posix)/)"
)
#: Parts of wheels that only their own tests use.
LEFT_OUT_OF_WHEELS = re.compile(r"(?:^|/)(?:tests?|testing)/(?=.)|\.pyi$|/f2py/|^numpy/(?:doc|distutils)/")
KEPT_OF_WHEELS = re.compile(r"^numpy/testing/|^botocore/data/|^dovetail/")
#: Services of AWS that the programs of the image may call; botocore describes four hundred others.
SERVICES = (
    "arc-zonal-shift", "autoscaling", "cloudtrail", "cloudwatch", "ec2", "eks", "events", "health", "iam", "kms",
    "pricing", "s3", "service-quotas", "signin", "sqs", "ssm", "sso", "sso-oidc", "sts",
)  # fmt: skip
OTHER_SERVICES = re.compile(r"^(?:botocore|boto3)/data/(?!(?:" + "|".join(SERVICES) + r")/)[^/]+/")
#: Image -> command whose arguments it takes, as upstream's images do; and the file an upstream manifest may name.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "dovetail": (),
    "cluster-autoscaler": ("cluster-autoscaler",),
    "vpa-recommender": ("vpa", "recommender"),
    "vpa-updater": ("vpa", "updater"),
    "vpa-admission-controller": ("vpa", "admission-controller"),
}

Files = dict[str, tuple[int, bytes | str]]  # path -> mode and content, or mode 0 and the target of a link


def run(*words: str | Path, **options: Any) -> str:
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **options).stdout


# -- Debian


def locked(arch: str) -> dict[str, tuple[str, str]]:
    """Package -> version and SHA-256."""
    rows = (line.split() for line in LOCK.read_text().splitlines() if line and not line.startswith("#"))
    return {name: (version, digest) for row_arch, name, version, digest in rows if row_arch == arch}


def apt_options(arch: str) -> list[str]:
    """apt with a state of its own, so that neither root nor the host's architecture matters."""
    state = CACHE / f"apt-{arch}"
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "Dir::State::lists": state / "lists", "Dir::State::status": state / "status", "Dir::Cache": state,
        "Dir::Cache::archives": state / "archives", "APT::Architecture": arch, "APT::Architectures": arch,
        "Dir::Etc::sourcelist": "sources.list.d/debian.sources", "Dir::Etc::sourceparts": "-", "APT::Sandbox::User": "",
    }  # fmt: skip
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def package(arch: str, name: str, version: str, digest: str) -> Path:
    """A package file, from the cache or from apt, with the locked hash."""
    folder = CACHE / "debs"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{digest}.deb"
    if not file.exists():
        options = apt_options(arch)
        if not any((CACHE / f"apt-{arch}" / "lists").glob("*Packages*")):
            run("apt-get", *options, "update")
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            try:
                run("apt-get", *options, "download", f"{name}={version}", cwd=work)
            except subprocess.CalledProcessError as problem:
                raise SystemExit(
                    f"{name} {version} ({arch}): apt has it no longer: {problem.stderr.strip()}\n"
                    "renew image/debian.lock with --lock, or point apt at a snapshot"
                ) from problem
            (fetched,) = Path(work).glob("*.deb")
            actual = hashlib.sha256(fetched.read_bytes()).hexdigest()
            if actual != digest:
                raise SystemExit(f"{name} {version} ({arch}): hash {actual} is not {digest} of image/debian.lock")
            shutil.move(fetched, file)
    return file


def write_lock() -> None:
    lines = ["# arch package version sha256, written by scripts/build_image.py --lock"]
    for arch in PLATFORMS:
        options = apt_options(arch)
        run("apt-get", *options, "update")
        for name in PACKAGES:
            shown = run("apt-cache", *options, "show", "--no-all-versions", name)
            fields = dict(re.findall(r"^(Version|SHA256): (.*)$", shown, re.MULTILINE))
            lines.append(f"{arch} {name} {fields['Version']} {fields['SHA256']}")
    LOCK.write_text("\n".join(lines) + "\n")


def debian_layer(arch: str) -> tuple[Files, list[dict[str, Any]]]:
    """Files of the packages, and what an SBOM says of them."""
    files: Files = {}
    components = []
    authorities = []
    for name, (version, digest) in sorted(locked(arch).items()):
        deb = package(arch, name, version, digest)
        content = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for entry in tar:
                path = _merged_usr(entry.name.removeprefix("./"))
                if "usr/share/ca-certificates/mozilla/" in path and entry.isfile():
                    authorities.append((path, _content(tar, entry)))
                if not path or LEFT_OUT.match(path):
                    continue
                if entry.issym():
                    files[path] = (0, entry.linkname)
                elif entry.islnk():
                    files[path] = files[_merged_usr(entry.linkname.removeprefix("./"))]
                elif entry.isfile():
                    files[path] = (0o755 if entry.mode & 0o100 else 0o644, _content(tar, entry))
        control = run("dpkg-deb", "--field", deb)
        files[f"var/lib/dpkg/status.d/{name}"] = (0o644, (control.rstrip() + "\n").encode())
        components.append(_component(name, version, f"pkg:deb/debian/{name}@{version}?arch={arch}", digest))
    files["etc/ssl/certs/ca-certificates.crt"] = (0o644, b"".join(text for _, text in sorted(authorities)))
    files = {path: entry for path, entry in files.items() if not path.startswith("usr/share/ca-certificates/")}
    files["etc/passwd"] = (0o644, f"root:x:0:0:root:/root:/\nnonroot:x:{USER}:{USER}::/tmp:/\n".encode())
    files["etc/group"] = (0o644, f"root:x:0:\nnonroot:x:{USER}:\n".encode())
    files["etc/nsswitch.conf"] = (0o644, b"hosts: files dns\n")
    for link in ("lib", "lib64", "bin", "sbin"):
        files[link] = (0, f"usr/{link}")
    return files, components


def _component(name: str, version: str, purl: str, digest: str) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "library", "name": name, "version": version, "bom-ref": purl, "purl": purl, "hashes": hashes}


def _merged_usr(path: str) -> str:
    return f"usr/{path}" if re.match(r"(?:lib|lib64|bin|sbin)/", path) else path.rstrip("/")


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(entry)
    assert stream is not None
    return stream.read()


# -- wheels and this tree


def wheels(arch: str) -> list[Path]:
    """The locked wheels, from the cache or from pip, which checks their hashes."""
    key = hashlib.sha256(WHEELS.read_bytes() + arch.encode()).hexdigest()[:16]
    folder = CACHE / f"wheels-{key}"
    if not folder.exists():
        part = Path(tempfile.mkdtemp(dir=CACHE))
        platforms = [word for tag in ("manylinux2014", "manylinux_2_17", "manylinux_2_26", "manylinux_2_27",
                                      "manylinux_2_28", "manylinux_2_34")
                     for word in ("--platform", f"{tag}_{PLATFORMS[arch]}")]  # fmt: skip
        run(sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps", "--only-binary", ":all:",
            "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none",
            *platforms, "-r", WHEELS, "-d", part)  # fmt: skip
        part.rename(folder)
    return sorted(folder.glob("*.whl"))


def wheel_layer(arch: str) -> tuple[Files, list[dict[str, Any]]]:
    files: Files = {}
    components = []
    for wheel in wheels(arch):
        name, version = wheel.name.split("-")[:2]
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", member.filename)
                outside = ".data/" in path or member.is_dir() or OTHER_SERVICES.match(path)
                if outside or (LEFT_OUT_OF_WHEELS.search(path) and not KEPT_OF_WHEELS.match(path)):
                    continue
                files[f"{SITE}/{path}"] = (0o644, archive.read(member))
        purl = f"pkg:pypi/{name.replace('_', '-').lower()}@{version}"
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        components.append(_component(name, version, purl, digest))
    return compiled(files), components


def version() -> str:
    match = re.search(r'^__version__ = "(.*)"$', (ROOT / "src" / "dovetail" / "__init__.py").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def own_layer() -> Files:
    """What git knows of the package and the charts, and the programs."""
    files: Files = {}
    for path in run("git", "ls-files", "src/dovetail", "charts", cwd=ROOT).splitlines():
        inside = path.removeprefix("src/") if path.startswith("src/") else f"dovetail/install/{path}"
        files[f"{SITE}/{inside}"] = (0o644, (ROOT / path).read_bytes())
    metadata = f"Metadata-Version: 2.1\nName: dovetail\nVersion: {version()}\n"
    files[f"{SITE}/dovetail-{version()}.dist-info/METADATA"] = (0o644, metadata.encode())
    files = compiled(files)
    for name, words in PROGRAMS.items():
        text = f"#!{PYTHON}\nimport sys\n\nfrom dovetail.cli.main import main\n\n"
        text += f"sys.argv[1:1] = {list(words)!r}\n" if words else ""
        script = (0o755, (text + "main()\n").encode())
        files[f"usr/local/bin/{name}"] = script
        files[name.removeprefix("vpa-")] = script
    return files


def compiled(files: Files) -> Files:
    """With bytecode that is trusted as it is: the root file system is read-only, and starting is quick."""
    if sys.version_info[:2] != (3, 11):
        raise SystemExit("the image's bytecode is made by Python 3.11; run this script with it")
    with tempfile.TemporaryDirectory() as work:
        for path, (mode, content) in files.items():
            if path.endswith(".py") and mode:
                target = Path(work) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                assert isinstance(content, bytes)
                target.write_bytes(content)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # type: ignore[assignment]
        compileall.compile_dir(work, quiet=2, stripdir=work, prependdir="/", invalidation_mode=mode, maxlevels=99)
        made = {str(file.relative_to(work)): (0o644, file.read_bytes()) for file in sorted(Path(work).rglob("*.pyc"))}
    return {**files, **made}


# -- the archive


def tarred(files: Files, empty: Iterable[tuple[str, int]] = ()) -> bytes:
    """A tar of sorted entries that belong to root and are of one moment."""
    out = io.BytesIO()
    folders = {str(parent) for path in files for parent in Path(path).parents if str(parent) != "."}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entries = {**dict.fromkeys(folders, (493, None)), **{name: (mode, None) for name, mode in empty}, **files}
        for path in sorted(entries):
            mode, content = entries[path]
            info = tarfile.TarInfo(path)
            info.mode, info.mtime = mode or 0o777, 0
            if content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Blobs:
    """Content by its digest."""

    def __init__(self) -> None:
        self.files: Files = {}

    def add(self, content: bytes, kind: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = (0o644, content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content), **more}


def sbom(arch: str, components: list[dict[str, Any]], created: str) -> bytes:
    application = {
        "type": "application", "name": "dovetail", "version": version(), "bom-ref": "dovetail",
        "purl": f"pkg:pypi/dovetail@{version()}", "licenses": [{"license": {"id": "Apache-2.0"}}],
    }  # fmt: skip
    name = json.dumps([arch, components], sort_keys=True)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}",
        "version": 1,
        "metadata": {"timestamp": created, "component": application},
        "components": components,
        "dependencies": [{"ref": "dovetail", "dependsOn": [row["bom-ref"] for row in components]}],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def build(arch: str, folder: Path) -> tuple[Path, Path]:
    """Write the archive and the SBOM; their paths."""
    created = run("git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", cwd=ROOT,
                  env={**os.environ, "TZ": "UTC"}).strip()  # fmt: skip
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    debian, packages = debian_layer(arch)
    dependencies, libraries = wheel_layer(arch)
    bill = sbom(arch, packages + libraries, created)
    own = own_layer() | {"usr/share/sbom/dovetail.cdx.json": (0o644, bill)}
    layers = [tarred(debian, [("tmp", 0o1777), ("root", 0o700)]), tarred(dependencies), tarred(own)]
    size = sum(map(len, layers))
    if size > MAX_BYTES:
        raise SystemExit(f"the image takes {size / 1e6:.0f} MB unpacked; at most {MAX_BYTES / 1e6:.0f} MB are allowed")
    blobs = Blobs()
    kind = "application/vnd.oci.image.layer.v1.tar+gzip"
    described = [blobs.add(gzip.compress(layer, 6, mtime=0), kind) for layer in layers]
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    manifests = []
    for name in PROGRAMS:
        config = {
            "architecture": arch, "os": "linux", "created": created,
            "config": {
                "User": f"{USER}:{USER}", "WorkingDir": "/", "Entrypoint": [f"/usr/local/bin/{name}"],
                "Cmd": ["run"] if name == "dovetail" else [],
                "Env": ["PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
                        "PYTHONUNBUFFERED=1", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
                "Labels": {f"org.opencontainers.image.{key}": text for key, text in (
                    ("title", name), ("version", version()), ("revision", commit), ("licenses", "Apache-2.0"))},
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }  # fmt: skip
        manifest = {
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": described,
            "config": blobs.add(_json(config), "application/vnd.oci.image.config.v1+json"),
        }  # fmt: skip
        named = {"org.opencontainers.image.ref.name": f"{name}:{version()}"}
        manifests.append(blobs.add(_json(manifest), manifest["mediaType"], annotations=named,
                                   platform={"architecture": arch, "os": "linux"}))  # fmt: skip
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    layout = _json({"imageLayoutVersion": "1.0.0"})
    files = {**blobs.files, "index.json": (0o644, _json(index)), "oci-layout": (0o644, layout)}
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"dovetail-{version()}-{arch}.oci.tar"
    archive.write_bytes(tarred(files))
    beside = folder / f"dovetail-{version()}-{arch}.cdx.json"
    beside.write_bytes(bill)
    return archive, beside


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=sorted(PLATFORMS), default="amd64")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--lock", action="store_true", help="renew image/debian.lock")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    if options.lock:
        write_lock()
        return
    for path in build(options.arch, options.output):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB  sha256:{digest}")


if __name__ == "__main__":
    main()
