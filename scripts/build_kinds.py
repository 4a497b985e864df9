"""Build the tables of built-in kinds from the Go modules: field names, types, keys and numbers, no prose.

    python scripts/build_kinds.py            writes src/dovetail/lab/apiserver/data/{types,resources}.json

The modules are found with `go mod download -json`. Facts come from three places: struct declarations with their tags
(JSON and protobuf names, patch strategies), the OpenAPI documents (list types, required fields, key defaults), and the
discovery documents (resources, verbs, short names, categories).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

RELEASE = "1.36.3"
MODULES = {
    "k8s.io/kubernetes": f"v{RELEASE}",
    **{
        f"k8s.io/{name}": f"v0.{RELEASE.split('.', 1)[1]}"
        for name in ("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator", "metrics")
    },
}
API_GROUPS = [
    *("admissionregistration", "apps", "authentication", "authorization", "autoscaling", "batch", "certificates"),
    *("coordination", "core", "discovery", "events", "flowcontrol", "networking", "node", "policy", "rbac"),
    *("resource", "scheduling", "storage"),
]
INTERNAL_GROUPS = ("core", "apps", "batch", "autoscaling", "policy", "networking", "storage", "scheduling", "discovery")
INTERNAL_ROOTS = ("core.PodSpec", "core.PodTemplateSpec", "core.PersistentVolumeClaimSpec", "core.PersistentVolumeSpec")
EXTRA = {
    "k8s.io/api/autoscaling/v2": ("types.go",),
    "k8s.io/apimachinery/pkg/apis/meta/v1": ("types.go",),
    "k8s.io/apimachinery/pkg/runtime": ("types.go",),
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1": ("types.go", "types_jsonschema.go"),
    "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1": ("types.go",),
    "k8s.io/metrics/pkg/apis/metrics/v1beta1": ("types.go",),
}
OUT = Path(__file__).parent.parent / "src/dovetail/lab/apiserver/data"
FIELD = re.compile(r"^\s*(?:(\w+)\s+)?(\S.*?)\s+`([^`]*)`")
TAG = re.compile(r'(\w+):"([^"]*)"')
SCALARS = {"string", "bool", "int", "int32", "int64", "uint8", "float64", "byte"}


def module_folder(path: str, version: str) -> Path:
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"{path}@{version}"], capture_output=True, check=True, text=True, cwd="/"
    )
    return Path(json.loads(answer.stdout)["Dir"])


class Package:
    """One Go package: its named types, written as [kind, …] entries under their full names."""

    def __init__(self, path: str, sources: list[Path]) -> None:
        self.path = path
        self.types: dict[str, Any] = {}
        for source in sources:
            self._read(source.read_text())

    def _read(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        self.imports = {
            alias or path.rsplit("/", 1)[1]: path
            for alias, path in re.findall(r'^(?:import)?\s+(\w+)?\s*"(k8s\.io/[^"]+)"', text, flags=re.M)
        }
        lines = iter(text.splitlines())
        markers: list[str] = []
        for line in lines:
            stripped = line.strip()
            if stripped.startswith("//"):
                markers.append(stripped)
                continue
            if match := re.match(r"^type (\w+) struct \{\s*$", line):
                self.types[match[1]] = self._struct(lines, markers)
            elif match := re.match(r"^type (\w+) (=\s*)?([\w\[\]\.\*]+)\s*(//.*)?$", line):
                self.types[match[1]] = {"alias": self._expression(match[3])}
            markers = markers if not stripped else []

    def _struct(self, lines: Any, markers: list[str]) -> dict[str, Any]:
        fields = []
        own: list[str] = []
        for line in lines:
            stripped = line.strip()
            if stripped == "}":
                break
            if stripped.startswith("//"):
                own.append(stripped)
                continue
            if stripped and (match := FIELD.match(line)):
                fields.append(self._field(match, own))
            own = []
        struct: dict[str, Any] = {"fields": [f for f in fields if f]}
        if any("+structType=atomic" in m for m in markers):
            struct["map"] = "atomic"
        return struct

    def _field(self, match: re.Match[str], markers: list[str]) -> dict[str, Any] | None:
        tags = dict(TAG.findall(match[3]))
        if "json" not in tags or tags["json"] == "-":
            return None
        name, *options = tags["json"].split(",")
        expression = match[2]
        field: dict[str, Any] = {
            "go": match[1] or expression.lstrip("*").rsplit(".", 1)[-1],
            "type": self._expression(expression),
        }
        if not name:
            field["inline"] = True
        else:
            field["name"] = name
        if "omitempty" not in options and "omitzero" not in options and name:
            field["always"] = True
        if "omitzero" in options:
            field["omitzero"] = True
        protobuf = tags.get("protobuf", "").split(",")
        if len(protobuf) > 1:
            field["number"] = int(protobuf[1])
        if tags.get("patchStrategy"):
            field["strategy"] = tags["patchStrategy"]
        if tags.get("patchMergeKey"):
            field["key"] = tags["patchMergeKey"]
        for marker in markers:
            if found_type := re.match(r"// \+listType=(\w+)", marker):
                field["list"] = found_type[1]
            elif found_key := re.match(r"// \+listMapKey=(\w+)", marker):
                field.setdefault("keys", []).append(found_key[1])
            elif re.match(r"// \+(mapType|structType)=atomic", marker):
                field["map"] = "atomic"
        return field

    def _expression(self, text: str) -> str:
        """A type expression with packages written out: `*k8s.io/api/core/v1.PodSpec`."""
        if match := re.match(r"^(\*|\[\]|map\[[\w\.]+\])(.*)$", text):
            prefix = match[1]
            if prefix.startswith("map["):
                prefix = f"map[{self._expression(prefix[4:-1])}]"
            return prefix + self._expression(match[2])
        if text in SCALARS:
            return text
        if "." in text:
            alias, name = text.split(".")
            return f"{self.imports[alias]}.{name}"
        return f"{self.path}.{text}"


def internal_types(kubernetes: Path) -> dict[str, list[list[str]]]:
    """The server's internal structs, which some messages print: [field, type] in their order, "" for embedded ones."""
    fields_by_type: dict[str, list[list[str]]] = {}
    for group in INTERNAL_GROUPS:
        text = re.sub(r"/\*.*?\*/", "", (kubernetes / f"pkg/apis/{group}/types.go").read_text(), flags=re.S)
        for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, flags=re.S | re.M):
            fields = [_internal_field(group, line) for line in body.splitlines()]
            fields_by_type[f"{group}.{name}"] = [field for field in fields if field]
        for name, alias in re.findall(r"^type (\w+) ([\w\[\]\.\*]+)$", text, flags=re.M):
            fields_by_type[f"{group}.{name}"] = [["=", _internal_type(group, alias)]]
    kept: dict[str, list[list[str]]] = {}
    whole = re.compile(r"(apps|autoscaling|batch|policy|storage)\.")
    queue = [name for name in fields_by_type if name in INTERNAL_ROOTS or whole.match(name)]
    while queue:
        name = queue.pop()
        if name in kept or name not in fields_by_type:
            continue
        kept[name] = fields_by_type[name]
        queue += [part for _, kind in fields_by_type[name] for part in re.findall(r"\w+\.\w+", kind)]
    return dict(sorted(kept.items()))


def _internal_field(group: str, line: str) -> list[str] | None:
    line = line.split("//")[0].strip()
    if not line:
        return None
    parts = line.split(None, 1)
    if len(parts) == 1:
        return ["", _internal_type(group, parts[0])]
    return [parts[0], _internal_type(group, re.sub(r"`.*`", "", parts[1]).strip())]


def _internal_type(group: str, text: str) -> str:
    text = text.replace("api.", "core.").replace("v1.", "metav1.").replace("metametav1.", "metav1.")
    return re.sub(r"(?<![\w.])([A-Z]\w*)", lambda match: f"{group}.{match[1]}", text)


def definition_name(full: str) -> str:
    path, name = full.rsplit(".", 1)
    host, *rest = path.split("/")
    return ".".join([*reversed(host.split(".")), *rest, name])


def openapi(kubernetes: Path) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for document in sorted((kubernetes / "api/openapi-spec/v3").glob("api*_openapi.json")):
        schemas |= json.loads(document.read_text()).get("components", {}).get("schemas", {})
    return schemas


def enums(kubernetes: Path) -> dict[tuple[str, str], list[str]]:
    """The values that fields may take, by the function that describes the struct and the field's name."""
    text = (kubernetes / "pkg/generated/openapi/zz_generated.openapi.go").read_text()
    values_by_field: dict[tuple[str, str], list[str]] = {}
    for function in text.split("\nfunc ")[1:]:
        name = function.split("(", 1)[0]
        for part in re.split(r'\n\t{5}(?=")', function)[1:]:
            values = re.search(r"Enum:\s+\[\]interface\{\}\{(.*?)\}", part.split("\n\t\t\t\t\t}", 1)[0])
            if values is not None:
                values_by_field[name, part.split('"')[1]] = re.findall(r'"([^"]*)"', values[1])
    return values_by_field


def described_by(full: str) -> str:
    """The name of the generated function that describes a struct."""
    path, name = full.rsplit(".", 1)
    return f"schema_{re.sub('[.-]', '', path).replace('/', '_')}_{name}"


def enrich(full: str, struct: dict[str, Any], schemas: dict[str, Any]) -> None:
    """What the OpenAPI documents say beyond the Go tags wins over comment markers."""
    schema = schemas.get(definition_name(full))
    if schema is None:
        return
    if schema.get("x-kubernetes-map-type"):
        struct["map"] = schema["x-kubernetes-map-type"]
    required = set(schema.get("required", ()))
    for field in struct["fields"]:
        prop = schema.get("properties", {}).get(field.get("name"))
        if prop is None:
            continue
        for key in ("list", "keys", "map"):
            field.pop(key, None)
        if prop.get("x-kubernetes-list-type"):
            field["list"] = prop["x-kubernetes-list-type"]
        if prop.get("x-kubernetes-list-map-keys"):
            field["keys"] = prop["x-kubernetes-list-map-keys"]
        if prop.get("x-kubernetes-map-type"):
            field["map"] = prop["x-kubernetes-map-type"]
        if prop.get("default") not in (None, {}, "", 0, False):
            field["default"] = prop["default"]
        if prop.get("enum"):
            field["enum"] = prop["enum"]
        if field["name"] in required:
            field["required"] = True


def packages(folders: dict[str, Path]) -> list[Package]:
    packages_read = []
    for group in API_GROUPS:
        path = f"k8s.io/api/{group}/v1"
        packages_read.append(Package(path, [folders["k8s.io/api"] / group / "v1" / "types.go"]))
    for path, sources in EXTRA.items():
        module = next(m for m in folders if path.startswith(m + "/"))
        folder = folders[module] / path[len(module) + 1 :]
        packages_read.append(Package(path, [folder / source for source in sources]))
    return packages_read


def resources(kubernetes: Path) -> list[dict[str, Any]]:
    """Every resource of the versions that are on by default (no alpha, no beta), in the order of discovery."""
    hashes: dict[tuple[str, str, str], str] = {}
    for document in (kubernetes / "api/discovery").glob("api*__*.json"):
        listing = json.loads(document.read_text())
        if listing.get("kind") != "APIResourceList":
            continue
        group, _, version = listing["groupVersion"].rpartition("/")
        for item in listing["resources"]:
            if "storageVersionHash" in item:
                hashes[group, version, item["name"]] = item["storageVersionHash"]
    core = {"metadata": {"name": ""}, "versions": [core_version(kubernetes)]}
    resources = []
    for group in [core, *json.loads((kubernetes / "api/discovery/aggregated_v2.json").read_text())["items"]]:
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            if "alpha" in version["version"] or "beta" in version["version"]:
                continue
            for item in version["resources"]:
                resources.append(resource(name, version["version"], item, hashes))
    return resources


def core_version(kubernetes: Path) -> dict[str, Any]:
    """The legacy document of the core group, in the shape of the aggregated one."""
    listing = json.loads((kubernetes / "api/discovery/api__v1.json").read_text())
    items: dict[str, Any] = {}
    for entry in listing["resources"]:
        plural, _, sub = entry["name"].partition("/")
        kind = {"group": entry.get("group", ""), "version": entry.get("version", ""), "kind": entry["kind"]}
        if sub:
            owner = items.setdefault(plural, {"resource": plural})
            owner.setdefault("subresources", []).append(
                {"subresource": sub, "responseKind": kind, "verbs": entry["verbs"]}
            )
            continue
        items[plural] = items.get(plural, {}) | {
            "resource": plural,
            "singularResource": entry["singularName"],
            "responseKind": kind,
            "scope": "Namespaced" if entry["namespaced"] else "Cluster",
            "verbs": entry["verbs"],
            "shortNames": entry.get("shortNames", []),
            "categories": entry.get("categories", []),
        }
    return {"version": "v1", "resources": list(items.values())}


def resource(group: str, version: str, item: dict[str, Any], hashes: dict[tuple[str, str, str], str]) -> dict[str, Any]:
    entry = {
        "group": group,
        "version": version,
        "plural": item["resource"],
        "singular": item["singularResource"],
        "kind": item["responseKind"]["kind"],
        "namespaced": item["scope"] == "Namespaced",
        "verbs": item["verbs"],
        "short": item.get("shortNames", []),
        "categories": item.get("categories", []),
        "hash": hashes.get((group, version, item["resource"]), ""),
        "sub": [
            [
                sub["subresource"],
                sub["responseKind"].get("group", ""),
                sub["responseKind"].get("version", ""),
                sub["responseKind"]["kind"],
                sub["verbs"],
            ]
            for sub in item.get("subresources", [])
        ],
    }
    return {key: value for key, value in entry.items() if value not in ("", [])} | {"group": group}


def reachable(types: dict[str, Any], roots: list[str]) -> dict[str, Any]:
    """Only the types that a served kind contains."""
    kept: dict[str, Any] = {}
    queue = list(roots)
    while queue:
        full = queue.pop()
        if full in kept or full not in types:
            continue
        kept[full] = types[full]
        text = json.dumps(types[full])
        queue += re.findall(r"k8s\.io/[\w./-]+\.\w+", text)
    return dict(sorted(kept.items()))


def write(name: str, data: dict[str, Any] | list[Any]) -> None:
    """One entry a line, so that a new release shows as a readable diff."""
    if isinstance(data, dict):
        rows = [f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in data.items()]
        text = "{\n" + ",\n".join(rows) + "\n}\n"
    else:
        text = "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in data) + "\n]\n"
    (OUT / f"{name}.json").write_text(text)


def main() -> None:
    folders = {path: module_folder(path, version) for path, version in MODULES.items()}
    schemas = openapi(folders["k8s.io/kubernetes"])
    values = enums(folders["k8s.io/kubernetes"])
    types: dict[str, Any] = {}
    for package in packages(folders):
        for name, declared in package.types.items():
            full = f"{package.path}.{name}"
            if "fields" in declared:
                enrich(full, declared, schemas)
                for field in declared["fields"]:
                    allowed = values.get((described_by(full), field.get("name", "")))
                    if allowed:
                        field["enum"] = allowed
            types[full] = declared
    served = resources(folders["k8s.io/kubernetes"])
    roots = [
        full for full, t in types.items() if any(f["go"] in ("TypeMeta", "ObjectMeta") for f in t.get("fields", ()))
    ]
    kept = reachable(types, roots)
    OUT.mkdir(parents=True, exist_ok=True)
    write("types", kept)
    write("resources", served)
    write("internal", internal_types(folders["k8s.io/kubernetes"]))
    sys.stdout.write(f"{len(kept)} types, {len(served)} resources\n")


if __name__ == "__main__":
    main()
