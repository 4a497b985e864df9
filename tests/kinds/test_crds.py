"""The definitions are made from the structs, the same to the byte every time, and every field says what it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dovetail.cli.crds import crds
from dovetail.model.kinds.crds import KINDS, definitions, render

DEFINITIONS = {each["metadata"]["name"]: each for each in definitions()}


def fields(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from fields(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], f"{path}[]")


def schemas() -> Iterator[tuple[str, Any]]:
    for name, definition in DEFINITIONS.items():
        for version in definition["spec"]["versions"]:
            yield f"{name}/{version['name']}", version["schema"]["openAPIV3Schema"]


def test_the_text_is_the_same_in_every_process() -> None:
    program = "from dovetail.model.kinds.crds import definitions, render; print(render(definitions()), end='')"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        assert done.stdout == render(definitions())


def test_the_text_reads_back_as_the_definitions() -> None:
    assert list(yaml.safe_load_all(render(definitions()))) == definitions()


@pytest.mark.parametrize(("name", "schema"), list(schemas()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_field_says_what_it_is(name: str, schema: Any) -> None:
    silent = [path for path, inner in fields(schema, "") if not inner.get("description")]
    assert silent == [".metadata"]
    assert schema["description"]


@pytest.mark.parametrize(("name", "schema"), list(schemas()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_rule_has_a_message_and_every_default_fits_its_type(name: str, schema: Any) -> None:
    kinds = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}
    for path, inner in [("", schema), *fields(schema, "")]:
        assert all(rule["message"] and rule["rule"] for rule in inner.get("x-kubernetes-validations", ())), path
        if "default" in inner:
            assert isinstance(inner["default"], kinds[inner["type"]]), path


def test_one_version_is_stored_and_all_are_served() -> None:
    for definition in DEFINITIONS.values():
        versions = definition["spec"]["versions"]
        assert [version["storage"] for version in versions] == [True] + [False] * (len(versions) - 1)
        assert all(version["served"] for version in versions)


def test_kubectl_shows_the_columns_of_each_era() -> None:
    def shown(name: str, version: int = 0) -> list[str]:
        columns = DEFINITIONS[name]["spec"]["versions"][version].get("additionalPrinterColumns", [])
        return [column["name"] for column in columns if not column.get("priority")]

    assert shown("nodepools.karpenter.sh") == ["NodeClass", "Nodes", "Ready", "Age"]
    assert shown("nodeclaims.karpenter.sh") == ["Type", "Capacity", "Zone", "Node", "Ready", "Age"]
    assert shown("nodeclaims.karpenter.sh", 1) == ["Type", "Zone", "Node", "Ready", "Age"]
    assert shown("provisioners.karpenter.sh") == ["Template"]
    assert shown("machines.karpenter.sh") == ["Type", "Zone", "Node", "Ready", "Age"]
    assert shown("awsnodetemplates.karpenter.k8s.aws") == []
    assert shown("ec2nodeclasses.karpenter.k8s.aws") == ["Ready", "Age"]


def test_a_webhook_is_named_only_where_there_is_something_to_convert() -> None:
    client = {"service": {"namespace": "karpenter", "name": "dovetail", "port": 443, "path": "/convert"}}
    for kind, definition in zip(KINDS, definitions(client), strict=True):
        assert ("conversion" in definition["spec"]) is (len(kind.versions) > 1)


def test_the_command_prints_all_some_or_says_what_there_is() -> None:
    run = CliRunner()
    assert run.invoke(crds, []).output == render(definitions())
    assert run.invoke(crds, ["nodepools"]).output.count("\nkind: CustomResourceDefinition") == 1
    hooked = run.invoke(crds, ["nodepools", "--webhook", "karpenter/dovetail:8443"]).output
    assert yaml.safe_load(hooked)["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 8443
    assert run.invoke(crds, ["nonsense"]).exit_code == 2
    assert run.invoke(crds, ["--webhook", "nonsense"]).exit_code == 2


def test_the_v1_definitions_alone_add_no_version_to_a_cluster_of_karpenter() -> None:
    run = CliRunner()
    printed = list(yaml.safe_load_all(run.invoke(crds, ["--only", "v1"]).output))
    assert [each["spec"]["names"]["kind"] for each in printed] == ["NodePool", "NodeClaim", "EC2NodeClass"]
    for each in printed:
        (version,) = each["spec"]["versions"]
        whole = DEFINITIONS[each["metadata"]["name"]]["spec"]["versions"]
        assert version["storage"] and version == next(other for other in whole if other["name"] == "v1")
    assert run.invoke(crds, ["--only", "v1", "provisioners"]).exit_code == 2
    assert "nothing to convert" in run.invoke(crds, ["--only", "v1", "--webhook", "a/b"]).output
