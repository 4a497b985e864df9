"""Charts as Helm and kubectl fetch them from the lab."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from dovetail.lab.chart_registry import ChartRegistry


@pytest.fixture(scope="module")
def registry() -> Iterator[ChartRegistry]:
    served = ChartRegistry()
    yield served
    served.close()


def get(registry: ChartRegistry, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{registry.address}{path}") as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("version", ["v0.16.0", "v0.30.0", "1.2.1", "0.37.8", "1.15.0-rc.1"])
def test_any_version_is_the_chart_with_that_version(registry: ChartRegistry, version: str) -> None:
    manifest = json.loads(get(registry, f"/v2/karpenter/karpenter/manifests/{version}"))
    (layer,) = manifest["layers"]
    content = get(registry, f"/v2/karpenter/karpenter/blobs/{layer['digest']}")
    assert layer["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert layer["size"] == len(content)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as tar:
        chart_file = tar.extractfile("dovetail/Chart.yaml")
        assert chart_file is not None
        assert yaml.safe_load(chart_file.read())["version"] == version
        assert "dovetail/templates/deployment.yaml" in tar.getnames()
    config = json.loads(get(registry, f"/v2/karpenter/karpenter/blobs/{manifest['config']['digest']}"))
    assert (config["name"], config["version"]) == ("dovetail", version)


def test_what_there_is_not_is_refused_as_a_registry_does(registry: ChartRegistry) -> None:
    for path, code in (
        ("/v2/karpenter/other/manifests/1.0.0", "NAME_UNKNOWN"),
        ("/v2/karpenter/karpenter/manifests/latest", "MANIFEST_UNKNOWN"),
        (f"/v2/karpenter/karpenter/blobs/sha256:{'0' * 64}", "BLOB_UNKNOWN"),
    ):
        answer = registry.answer(path)
        assert answer.status == 404
        assert json.loads(answer.body)["errors"][0]["code"] == code
    assert registry.answer("/../etc/passwd").status == 404


def test_a_push_is_refused_as_a_registry_does(registry: ChartRegistry) -> None:
    request = urllib.request.Request(
        f"http://{registry.address}/v2/karpenter/karpenter/blobs/uploads/", b"x", method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 405
    assert json.loads(refused.value.read())["errors"][0]["code"] == "UNSUPPORTED"


def test_the_repository_lists_archives_that_exist(registry: ChartRegistry) -> None:
    index = yaml.safe_load(get(registry, "/index.yaml"))
    (first, *_) = [row for row in index["entries"]["karpenter"] if row["version"] == "v0.16.0"]
    archive = get(registry, first["urls"][0].removeprefix(f"http://{registry.address}"))
    assert hashlib.sha256(archive).hexdigest() == first["digest"]


def test_an_old_definition_comes_with_those_that_carry_it_out(registry: ChartRegistry) -> None:
    path = "/aws/karpenter/v0.30.0/pkg/apis/crds/karpenter.sh_provisioners.yaml"
    kinds = [body["spec"]["names"]["kind"] for body in yaml.safe_load_all(get(registry, path))]
    assert kinds == ["Provisioner", "Machine", "NodePool", "NodeClaim"]
    path = "/aws/karpenter-provider-aws/v1.2.1/pkg/apis/crds/karpenter.sh_nodepools.yaml"
    assert [body["spec"]["names"]["kind"] for body in yaml.safe_load_all(get(registry, path))] == ["NodePool"]
    assert b"is none of" in registry.answer("/aws/karpenter/main/pkg/apis/crds/karpenter.sh_nodes.yaml").body
