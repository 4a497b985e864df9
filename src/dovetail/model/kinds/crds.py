"""The custom resource definitions, made from the structs: `dovetail crds | kubectl apply -f -`.

The text is the same to the byte on every run. NodePool, NodeClaim and EC2NodeClass are served in two versions
of one definition, stored as v1; the first generation has definitions of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from dovetail.model.kinds.buffer import CapacityBuffer
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodeclass import EC2NodeClass
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.overlay import NodeOverlay
from dovetail.model.kinds.schema import Json, members, schema_of
from dovetail.model.kinds.v1alpha5 import AWSNodeTemplate, Machine, Provisioner
from dovetail.model.kinds.v1beta1 import BetaNodeClaim, BetaNodeClass, BetaNodePool

READY = '.status.conditions[?(@.type=="Ready")].status'


class PrinterColumn(msgspec.Struct, frozen=True):
    name: str
    path: str
    type: str = "string"
    wide: bool = False


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


def _label(name: str) -> str:
    return ".metadata.labels." + name.replace(".", r"\.")


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of a kind: how it is described and how `kubectl get` shows it."""

    name: str
    struct: type[msgspec.Struct]
    columns: tuple[PrinterColumn, ...] = ()
    scale: tuple[str, str] | None = None


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One custom resource definition; the first version is the stored one."""

    group: str
    kind: str
    plural: str
    versions: tuple[Version, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("karpenter",)
    namespaced: bool = False

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"


_TYPE = PrinterColumn("Type", _label("node.kubernetes.io/instance-type"))
_CAPACITY = PrinterColumn("Capacity", _label("karpenter.sh/capacity-type"))
_ZONE = PrinterColumn("Zone", _label("topology.kubernetes.io/zone"))
_NODE = PrinterColumn("Node", ".status.nodeName")
_READY = PrinterColumn("Ready", READY)


def _wide(column: PrinterColumn) -> PrinterColumn:
    return msgspec.structs.replace(column, wide=True)


NODEPOOL_COLUMNS = (
    PrinterColumn("NodeClass", ".spec.template.spec.nodeClassRef.name"),
    PrinterColumn("Nodes", ".status.nodes"),
    _READY,
    AGE,
    PrinterColumn("Weight", ".spec.weight", "integer", wide=True),
    PrinterColumn("CPU", ".status.resources.cpu", wide=True),
    PrinterColumn("Memory", ".status.resources.memory", wide=True),
)
NODECLAIM_COLUMNS = (
    _TYPE,
    _CAPACITY,
    _ZONE,
    _NODE,
    _READY,
    AGE,
    PrinterColumn("ImageID", ".status.imageID", wide=True),
    PrinterColumn("ID", ".status.providerID", wide=True),
    PrinterColumn("NodePool", _label("karpenter.sh/nodepool"), wide=True),
    PrinterColumn("NodeClass", ".spec.nodeClassRef.name", wide=True),
    PrinterColumn("Drifted", '.status.conditions[?(@.type=="Drifted")].status', wide=True),
)
_OLD_CLAIM_COLUMNS = (_TYPE, _ZONE, _NODE, _READY, AGE, _wide(_CAPACITY))
BETA_NODECLAIM_COLUMNS = (
    *_OLD_CLAIM_COLUMNS,
    PrinterColumn("NodePool", _label("karpenter.sh/nodepool"), wide=True),
    PrinterColumn("NodeClass", ".spec.nodeClassRef.name", wide=True),
)
MACHINE_COLUMNS = (
    *_OLD_CLAIM_COLUMNS,
    PrinterColumn("Provisioner", _label("karpenter.sh/provisioner-name"), wide=True),
    PrinterColumn("Template", ".spec.machineTemplateRef.name", wide=True),
)
BUFFER_COLUMNS = (
    PrinterColumn("Strategy", ".spec.provisioningStrategy"),
    PrinterColumn("PodTemplate", ".status.podTemplateRef.name"),
    PrinterColumn("Replicas", ".status.replicas", "integer"),
    PrinterColumn("ConditionsType", ".status.conditions[*].type"),
    PrinterColumn("ConditionsStatus", ".status.conditions[*].status"),
    PrinterColumn("ConditionsReason", ".status.conditions[*].reason"),
    AGE,
)
BETA_POOL_COLUMNS = (
    PrinterColumn("NodeClass", ".spec.template.spec.nodeClassRef.name"),
    PrinterColumn("Weight", ".spec.weight", wide=True),
)
PROVISIONER_COLUMNS = (
    PrinterColumn("Template", ".spec.providerRef.name"),
    PrinterColumn("Weight", ".spec.weight", wide=True),
)

KINDS: tuple[Kind, ...] = (
    Kind(
        group="karpenter.sh",
        kind="NodePool",
        plural="nodepools",
        versions=(
            Version(name="v1", struct=NodePool, columns=NODEPOOL_COLUMNS, scale=(".spec.replicas", ".status.nodes")),
            Version(name="v1beta1", struct=BetaNodePool, columns=BETA_POOL_COLUMNS),
        ),
    ),
    Kind(
        group="karpenter.sh",
        kind="NodeClaim",
        plural="nodeclaims",
        versions=(
            Version(name="v1", struct=NodeClaim, columns=NODECLAIM_COLUMNS),
            Version(name="v1beta1", struct=BetaNodeClaim, columns=BETA_NODECLAIM_COLUMNS),
        ),
    ),
    Kind(
        group="karpenter.sh",
        kind="NodeOverlay",
        plural="nodeoverlays",
        short_names=("overlays",),
        versions=(
            Version(
                name="v1alpha1",
                struct=NodeOverlay,
                columns=(_READY, AGE, PrinterColumn("Weight", ".spec.weight", "integer", wide=True)),
            ),
        ),
    ),
    Kind(
        group="karpenter.k8s.aws",
        kind="EC2NodeClass",
        plural="ec2nodeclasses",
        short_names=("ec2nc", "ec2ncs"),
        versions=(
            Version(
                name="v1", struct=EC2NodeClass, columns=(_READY, AGE, PrinterColumn("Role", ".spec.role", wide=True))
            ),
            Version(name="v1beta1", struct=BetaNodeClass),
        ),
    ),
    Kind(
        group="autoscaling.x-k8s.io",
        kind="CapacityBuffer",
        plural="capacitybuffers",
        short_names=("cb",),
        categories=("autoscaling",),
        namespaced=True,
        versions=(Version(name="v1beta1", struct=CapacityBuffer, columns=BUFFER_COLUMNS),),
    ),
    Kind(
        group="karpenter.sh",
        kind="Provisioner",
        plural="provisioners",
        versions=(Version(name="v1alpha5", struct=Provisioner, columns=PROVISIONER_COLUMNS),),
    ),
    Kind(
        group="karpenter.sh",
        kind="Machine",
        plural="machines",
        versions=(Version(name="v1alpha5", struct=Machine, columns=MACHINE_COLUMNS),),
    ),
    Kind(
        group="karpenter.k8s.aws",
        kind="AWSNodeTemplate",
        plural="awsnodetemplates",
        versions=(Version(name="v1alpha1", struct=AWSNodeTemplate),),
    ),
)


def struct_of(api_version: str, kind: str) -> type[msgspec.Struct] | None:
    """The struct that describes a kind in a generation, if it is one of ours."""
    return _STRUCTS.get((api_version, kind))


_STRUCTS = {(f"{kind.group}/{version.name}", kind.kind): version.struct for kind in KINDS for version in kind.versions}


def definitions(conversion: Mapping[str, Any] | None = None) -> list[Json]:
    """Every definition. `conversion` is the clientConfig of the conversion webhook, where one runs."""
    return [definition(kind, conversion) for kind in KINDS]


def in_version(name: str) -> tuple[Kind, ...]:
    """The kinds that have a version of this name, with that version alone."""
    versions = [(kind, tuple(version for version in kind.versions if version.name == name)) for kind in KINDS]
    return tuple(msgspec.structs.replace(kind, versions=named) for kind, named in versions if named)


def definition(kind: Kind, conversion: Mapping[str, Any] | None = None) -> Json:
    names: Json = {
        "categories": list(kind.categories),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    spec: Json = {"group": kind.group}
    if conversion is not None and len(kind.versions) > 1:
        webhook = {"clientConfig": dict(conversion), "conversionReviewVersions": ["v1"]}
        spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    spec["names"] = dict(sorted(names.items()))
    spec["scope"] = "Namespaced" if kind.namespaced else "Cluster"
    spec["versions"] = [_version(version, stored=index == 0) for index, version in enumerate(kind.versions)]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name, "labels": {"app.kubernetes.io/name": "dovetail"}},
        "spec": spec,
    }


def _version(version: Version, *, stored: bool) -> Json:
    said: Json = {}
    if version.columns:
        said["additionalPrinterColumns"] = [_column(column) for column in version.columns]
    said["name"] = version.name
    said["schema"] = {"openAPIV3Schema": root_schema(version.struct)}
    said["served"] = True
    said["storage"] = stored
    said["subresources"] = {"status": {}}
    if version.scale:
        spec_path, status_path = version.scale
        said["subresources"]["scale"] = {"specReplicasPath": spec_path, "statusReplicasPath": status_path}
    return said


def root_schema(struct: type[msgspec.Struct]) -> Json:
    """The schema of a whole object: the struct's, with Kubernetes' own envelope."""
    schema = schema_of(struct)
    del schema["properties"]["metadata"]
    envelope: Json = {
        "apiVersion": {"description": "API group and version of this object.", "type": "string"},
        "kind": {"description": "Kind of this object.", "type": "string"},
        "metadata": {"type": "object"},
    }
    text = " ".join((inspect.getdoc(struct) or "").split())
    required = [name for name, (_, field) in members(struct).items() if field.required]
    root: Json = {"description": text, "type": "object", "properties": {**envelope, **schema["properties"]}}
    if required:
        root["required"] = required
    return root


def _column(column: PrinterColumn) -> Json:
    said: Json = {"jsonPath": column.path, "name": column.name}
    if column.wide:
        said["priority"] = 1
    said["type"] = column.type
    return said


class _Plain(yaml.SafeDumper):
    """YAML without anchors: a definition says everything in place."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(definitions: list[Json]) -> str:
    """The definitions as one YAML stream."""
    return "".join(
        "---\n" + yaml.dump(definition, Dumper=_Plain, sort_keys=False, width=110) for definition in definitions
    )
