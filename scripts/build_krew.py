"""Writes the archive and the manifest of the kubectl plugin for krew: `python scripts/build_krew.py [ARCHIVE]`.

The same tree gives the same bytes, so the manifest holds the digest of an archive that a release makes later.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile
from pathlib import Path

import yaml

from dovetail import __version__

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "krew" / "dovetail.yaml"
#: Where releases are served; a release may name another with KREW_HOME.
HOME = os.environ.get("KREW_HOME", "https://dovetail.sh")
FILES = (("kubectl-dovetail", ROOT / "krew" / "kubectl-dovetail", 0o755), ("LICENSE", ROOT / "LICENSE", 0o644))


def archive() -> bytes:
    """A tar.gz without times, owners and order of its own."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, path, mode in FILES:
            content = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def manifest() -> str:
    version = f"v{__version__}"
    selector = {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]}
    platform = {
        "selector": selector,
        "uri": f"{HOME}/releases/download/{version}/kubectl-dovetail-{version}.tar.gz",
        "sha256": hashlib.sha256(archive()).hexdigest(),
        "bin": "kubectl-dovetail",
        "files": [{"from": name, "to": "."} for name, _, _ in FILES],
    }
    spec = {
        "version": version,
        "homepage": HOME,
        "shortDescription": "Explain pending pods and nodes, find misconfigurations",
        "description": "kubectl dovetail explain pod/NAME says why a pod waits and what helps; kubectl dovetail\n"
        "doctor checks a cluster and its AWS account; kubectl dovetail plan says which nodes pods need.\n"
        "Works with Dovetail, Karpenter and Cluster Autoscaler.\n",
        "caveats": "The plugin starts the dovetail command: pipx install dovetail\n",
        "platforms": [platform],
    }
    kind = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin"}
    return yaml.safe_dump({**kind, "metadata": {"name": "dovetail"}, "spec": spec}, sort_keys=False)


def main() -> None:
    MANIFEST.write_text(manifest())
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(archive())


if __name__ == "__main__":
    main()
