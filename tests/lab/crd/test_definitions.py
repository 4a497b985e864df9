"""Definitions come, are served, change, and go."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.registry import Object

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"


def definition(*versions: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.lab.example"},
        "spec": {
            "group": "lab.example",
            "scope": "Cluster",
            "names": {"plural": "gears", "kind": "Gear"},
            "versions": list(versions) or [version("v1", storage=True)],
            **spec,
        },
    }


def version(name: str, storage: bool = False, **properties: Any) -> Object:
    spec = {"type": "object", "properties": properties or {"teeth": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def gear(name: str = "g", api: str = "v1", **spec: Any) -> Object:
    return {"apiVersion": f"lab.example/{api}", "kind": "Gear", "metadata": {"name": name}, "spec": spec}


def test_a_fresh_definition_has_no_conditions_and_is_established_right_after(api: Any) -> None:
    code, made, _ = api("POST", CRDS, definition())
    assert (code, made["status"]["conditions"]) == (201, None)
    assert made["status"]["storedVersions"] == ["v1"]
    _, now, _ = api("GET", f"{CRDS}/gears.lab.example")
    assert [(c["type"], c["status"]) for c in now["status"]["conditions"]] == [
        ("NamesAccepted", "True"),
        ("Established", "True"),
    ]
    assert api("POST", "/apis/lab.example/v1/gears", gear(teeth=3))[0] == 201


def test_a_deleted_definition_takes_its_instances_along(api: Any) -> None:
    api("POST", CRDS, definition())
    api("POST", "/apis/lab.example/v1/gears", gear())
    code, gone, _ = api("DELETE", f"{CRDS}/gears.lab.example")
    assert code == 200 and gone["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert api("GET", f"{CRDS}/gears.lab.example")[0] == 404
    assert api("GET", "/apis/lab.example/v1/gears")[0] == 404


def test_a_definition_waits_for_an_instance_that_something_holds(api: Any) -> None:
    api("POST", CRDS, definition())
    held = gear() | {"metadata": {"name": "g", "finalizers": ["lab.example/hold"]}}
    api("POST", "/apis/lab.example/v1/gears", held)
    api("DELETE", f"{CRDS}/gears.lab.example")
    _, waiting, _ = api("GET", f"{CRDS}/gears.lab.example")
    assert waiting["status"]["conditions"][-1]["reason"] == "InstanceDeletionInProgress"
    api("PATCH", "/apis/lab.example/v1/gears/g", {"metadata": {"finalizers": None}}, MERGE)
    assert api("GET", f"{CRDS}/gears.lab.example")[0] == 404


def test_versions_convert_through_a_function_of_ours(api: Any) -> None:
    """A definition's converter is asked on the way in and on the way out."""

    def convert(obj: Object, wanted: str) -> Object:
        spec = dict(obj["spec"])
        old, new = ("cogs", "teeth") if wanted == "v2" else ("teeth", "cogs")
        if old in spec:
            spec[new] = spec.pop(old)
        return {**obj, "apiVersion": f"lab.example/{wanted}", "spec": spec}

    api.server.registry.converters["gears.lab.example"] = convert
    one = version("v1", cogs={"type": "integer", "maximum": 9})
    two = version("v2", storage=True, teeth={"type": "integer"})
    api("POST", CRDS, definition(one, two))
    assert api("POST", "/apis/lab.example/v1/gears", gear(api="v1", cogs=5))[0] == 201
    assert api("GET", "/apis/lab.example/v2/gears/g")[1]["spec"] == {"teeth": 5}
    assert api("GET", "/apis/lab.example/v1/gears/g")[1]["spec"] == {"cogs": 5}
    code, refused, _ = api("POST", "/apis/lab.example/v1/gears", gear("h", "v1", cogs=10))
    assert code == 422 and "spec.cogs in body should be less than or equal to 9" in refused["message"]


def test_names_that_another_definition_took_are_not_accepted(api: Any) -> None:
    api("POST", CRDS, definition())
    other = definition(names={"plural": "cogs", "kind": "Gear", "singular": "cog"})
    api("POST", CRDS, other | {"metadata": {"name": "cogs.lab.example"}})
    _, now, _ = api("GET", f"{CRDS}/cogs.lab.example")
    first = now["status"]["conditions"][0]
    assert (first["type"], first["status"], first["reason"]) == ("NamesAccepted", "False", "ListKindConflict")
    assert api("GET", "/apis/lab.example/v1/cogs")[0] == 404


def test_a_definition_that_changes_is_served_anew(api: Any) -> None:
    api("POST", CRDS, definition())
    changed = definition(version("v1", storage=True, teeth={"type": "integer", "default": 8}))
    assert api("PATCH", f"{CRDS}/gears.lab.example", {"spec": changed["spec"]}, MERGE)[0] == 200
    assert api("POST", "/apis/lab.example/v1/gears", gear())[1]["spec"] == {"teeth": 8}
