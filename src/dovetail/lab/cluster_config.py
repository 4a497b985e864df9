"""An eksctl ClusterConfig as the lab reads it: the cluster, its network and its node groups.

Fields that have no meaning in a lab are listed; a field that does not exist, or a value that cannot be, is refused
with its line and a hint.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.cloud.aws import catalog
from dovetail.lab.aws.eks_images import VERSIONS
from dovetail.language import message, source, translated
from dovetail.language.system_errors import system_error
from dovetail.model import yaml_document
from dovetail.model.spelling import nearest

KIND = "ClusterConfig"
API_GROUP = "eksctl.io/"
DEFAULT_SIZE = 2
DEFAULT_TYPE = "m5.large"
#: What eksctl calls the type of a group with an instances distribution.
MIXED = "mixed"
DEFAULT_VOLUME_GIB = 80
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


class ConfigRefused(ValueError):
    """The file cannot be used; the text names the line, the field and the remedy."""


class InstancesDistribution(msgspec.Struct, frozen=True, kw_only=True):
    """How a self-managed group mixes on-demand and spot."""

    instance_types: tuple[str, ...] = ()
    on_demand_base: int = 0
    on_demand_percentage: int = 100
    max_price: float | None = None
    spot_allocation_strategy: str = ""


class NodeRoleConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a group's instances may do beyond what every node may. `line`: where it stands."""

    policy_arns: tuple[str, ...] = ()
    policy: Mapping[str, Any] | None = None
    #: eksctl's policy for Cluster Autoscaler.
    auto_scaler: bool = False
    line: str = ""

    def __bool__(self) -> bool:
        return bool(self.policy_arns or self.policy or self.auto_scaler)


class NodeGroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A node group of the file, with eksctl's defaults."""

    name: str
    managed: bool = False
    instance_types: tuple[str, ...] = (DEFAULT_TYPE,)
    min_size: int = DEFAULT_SIZE
    max_size: int = DEFAULT_SIZE
    desired: int = DEFAULT_SIZE
    labels: Mapping[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    tags: Mapping[str, str] = {}
    volume_gib: int = DEFAULT_VOLUME_GIB
    spot: bool = False
    distribution: InstancesDistribution | None = None
    max_pods: int | None = None
    #: Empty: all zones of the region.
    zones: tuple[str, ...] = ()
    suspended_processes: tuple[str, ...] = ()
    #: Labels and taints become tags of the Auto Scaling group, for an autoscaler that starts it from zero.
    propagate_tags: bool = False
    role: NodeRoleConfig = NodeRoleConfig()


class ServiceAccountConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A service account with an IAM role. `line`: where it stands, for messages of what only AWS can refuse."""

    name: str
    namespace: str = "default"
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    policy_arns: tuple[str, ...] = ()
    policy: Mapping[str, Any] | None = None
    #: eksctl's policy for Cluster Autoscaler.
    auto_scaler: bool = False
    ebs_csi_controller: bool = False
    role_name: str = ""
    #: A role that exists: none is made.
    role_arn: str = ""
    role_only: bool = False
    line: str = ""


class KarpenterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The block that lets eksctl install Karpenter; here it installs Dovetail."""

    interruption_queue: bool = False


class FargateProfileConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A Fargate profile. `selectors`: namespaces and labels."""

    name: str
    selectors: tuple[tuple[str, Mapping[str, str]], ...]
    #: Empty: the role that eksctl makes for the cluster's profiles.
    role_arn: str = ""
    tags: Mapping[str, str] = {}


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`ignored`: fields that were set and mean nothing here, with their lines."""

    name: str
    region: str
    version: str = ""
    cidr: str = ""
    with_oidc: bool = False
    service_accounts: tuple[ServiceAccountConfig, ...] = ()
    #: None: no autoscaler of nodes is installed.
    karpenter: KarpenterConfig | None = None
    groups: tuple[NodeGroupConfig, ...] = ()
    fargate_profiles: tuple[FargateProfileConfig, ...] = ()
    ignored: tuple[str, ...] = ()


#: Fields by place: a kind of value, a table of fields, a list of one table, or a reason why it means nothing here.
TEXT, INT, FLOAT, BOOL, TEXTS, MAP, TAINTS = "text", "int", "float", "bool", "texts", "map", "taints"
DOCUMENT, PERCENT, TYPE, TYPES = "document", "percent", "type", "types"
_NOTHING = source("means nothing in the lab")
#: Under which a table keeps where it stands; no field of eksctl is called so.
LINE = "#"
_MEANT = {
    INT: source("a whole number"),
    PERCENT: source("a whole number"),
    TYPE: source("a text"),
    TYPES: source("a list of texts"),
    FLOAT: source("a number"),
    BOOL: source("true or false"),
    TEXT: source("a text"),
    TEXTS: source("a list of texts"),
    MAP: source("fields with texts"),
    TAINTS: source("a list of key, value and effect"),
    DOCUMENT: source("an IAM policy document"),
}


class Ignored(msgspec.Struct, frozen=True):
    """A field of eksctl that is accepted and listed."""

    why: str = _NOTHING


class OneOf(msgspec.Struct, frozen=True):
    """A text, or a list of texts, of which there are only these."""

    choices: tuple[str, ...]
    many: bool = False


_OFF = Ignored()
_PROCESSES = OneOf(
    ("Launch", "Terminate", "AddToLoadBalancer", "AlarmNotification", "AZRebalance", "HealthCheck", "InstanceRefresh",
     "ReplaceUnhealthy", "ScheduledActions"),
    many=True,
)  # fmt: skip
_SPOT_STRATEGY = OneOf(
    ("lowest-price", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized")
)
_NODE_ROLE: dict[str, Any] = {
    "attachPolicyARNs": TEXTS, "attachPolicy": DOCUMENT,
    "withAddonPolicies": {
        "autoScaler": BOOL, "imageBuilder": _OFF, "ImageBuilder": _OFF, "externalDNS": _OFF, "certManager": _OFF,
        "appMesh": _OFF, "appMeshPreview": _OFF, "ebs": _OFF, "fsx": _OFF, "efs": _OFF, "albIngress": _OFF,
        "awsLoadBalancerController": _OFF, "xRay": _OFF, "cloudWatch": _OFF,
    },
    "instanceProfileARN": _OFF, "instanceRoleARN": _OFF, "instanceRoleName": _OFF,
    "instanceRolePermissionsBoundary": _OFF,
}  # fmt: skip
_SSH = {"allow": _OFF, "publicKeyName": _OFF, "publicKeyPath": _OFF, "publicKey": _OFF, "enableSsm": _OFF,
        "sourceSecurityGroupIds": _OFF}  # fmt: skip
_GROUP: dict[str, Any] = {
    "name": TEXT, "instanceType": TYPE, "minSize": INT, "maxSize": INT, "desiredCapacity": INT, "labels": MAP,
    "taints": TAINTS, "tags": MAP, "volumeSize": INT, "ssh": _OFF, "iam": _NODE_ROLE,
    "amiFamily": _OFF, "ami": _OFF, "volumeType": _OFF, "volumeEncrypted": _OFF, "volumeKmsKeyID": _OFF,
    "volumeIOPS": _OFF, "volumeThroughput": _OFF, "volumeName": _OFF, "privateNetworking": _OFF,
    "availabilityZones": TEXTS, "subnets": _OFF, "securityGroups": _OFF, "preBootstrapCommands": _OFF,
    "overrideBootstrapCommand": _OFF, "disableIMDSv1": _OFF, "disablePodIMDS": _OFF, "placement": _OFF,
    "efaEnabled": _OFF, "instanceSelector": _OFF, "instanceName": _OFF,
    "instancePrefix": _OFF, "bottlerocket": _OFF, "enableDetailedMonitoring": _OFF, "additionalVolumes": _OFF,
    "capacityReservation": _OFF,
}  # fmt: skip
_DISTRIBUTION = {
    "instanceTypes": TYPES, "maxPrice": FLOAT, "onDemandBaseCapacity": INT,
    "onDemandPercentageAboveBaseCapacity": PERCENT, "spotAllocationStrategy": _SPOT_STRATEGY, "spotInstancePools": _OFF,
    "capacityRebalance": _OFF,
}  # fmt: skip
_SELF_MANAGED = _GROUP | {
    "instancesDistribution": _DISTRIBUTION, "maxPodsPerNode": INT, "propagateASGTags": BOOL,
    "asgSuspendProcesses": _PROCESSES, "asgMetricsCollection": _OFF, "cpuCredits": _OFF,
    "classicLoadBalancerNames": _OFF, "targetGroupARNs": _OFF, "clusterDNS": _OFF, "kubeletExtraConfig": _OFF,
    "containerRuntime": _OFF, "maxInstanceLifetime": _OFF, "updatePolicy": _OFF, "localZones": _OFF,
}  # fmt: skip
_MANAGED = _GROUP | {
    "instanceTypes": TYPES, "spot": BOOL, "updateConfig": _OFF, "launchTemplate": _OFF, "releaseVersion": _OFF,
    "nodeRepairConfig": _OFF, "maxPodsPerNode": _OFF,
    "propagateASGTags": Ignored(source("changes nothing: EKS tells the labels and taints of a managed node group")),
}  # fmt: skip
_SERVICE_ACCOUNT: dict[str, Any] = {
    "metadata": {"name": TEXT, "namespace": TEXT, "labels": MAP, "annotations": MAP},
    "attachPolicyARNs": TEXTS, "attachPolicy": DOCUMENT, "attachRoleARN": TEXT, "roleName": TEXT, "roleOnly": BOOL,
    "wellKnownPolicies": {
        "autoScaler": BOOL, "ebsCSIController": BOOL, "imageBuilder": _OFF, "awsLoadBalancerController": _OFF,
        "externalDNS": _OFF, "certManager": _OFF, "efsCSIController": _OFF,
    },
    "permissionsBoundary": _OFF, "tags": _OFF, "status": _OFF,
}  # fmt: skip
_KARPENTER: dict[str, Any] = {
    "version": Ignored(source("is not the version that is installed: the lab installs this version of Dovetail")),
    "createServiceAccount": Ignored(source("changes nothing: the chart makes the service account")),
    "withSpotInterruptionQueue": BOOL, "defaultInstanceProfile": _OFF,
}  # fmt: skip
_FARGATE: dict[str, Any] = {
    "name": TEXT, "podExecutionRoleARN": TEXT, "selectors": [{"namespace": TEXT, "labels": MAP}], "tags": MAP,
    "subnets": _OFF, "status": _OFF,
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "apiVersion": TEXT, "kind": TEXT,
    "metadata": {"name": TEXT, "region": TEXT, "version": OneOf(VERSIONS), "tags": _OFF, "annotations": _OFF},
    "iam": {"withOIDC": BOOL, "serviceAccounts": [_SERVICE_ACCOUNT], "serviceRoleARN": _OFF,
            "vpcResourceControllerPolicy": _OFF, "podIdentityAssociations": _OFF,
            "serviceRolePermissionsBoundary": _OFF,
            "autoCreatePodIdentityAssociations": _OFF},
    "vpc": {"cidr": TEXT, "id": _OFF, "subnets": _OFF, "nat": _OFF, "clusterEndpoints": _OFF, "securityGroup": _OFF,
            "sharedNodeSecurityGroup": _OFF, "publicAccessCIDRs": _OFF, "autoAllocateIPv6": _OFF, "ipFamily": _OFF,
            "manageSharedNodeSecurityGroupRules": _OFF, "extraCIDRs": _OFF, "hostnameType": _OFF},
    "availabilityZones": _OFF, "localZones": _OFF, "addons": _OFF, "addonsConfig": _OFF, "cloudWatch": _OFF,
    "secretsEncryption": _OFF, "fargateProfiles": [_FARGATE], "privateCluster": _OFF, "identityProviders": _OFF,
    "gitops": _OFF, "kubernetesNetworkConfig": _OFF, "karpenter": _KARPENTER, "accessConfig": _OFF, "outpost": _OFF,
    "upgradePolicy": _OFF, "zonalShiftConfig": _OFF, "autoModeConfig": _OFF,
    "nodeGroups": [_SELF_MANAGED],
    "managedNodeGroups": [_MANAGED],
}  # fmt: skip


class _Reader:
    """Checks a document against the schema and keeps the lines of its fields."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.ignored: list[str] = []
        #: Where each field stands.
        self.lines: dict[str, str] = {}

    def refuse(self, node: yaml.Node, field: str, text: str) -> ConfigRefused:
        return ConfigRefused(f"{self.source}:{node.start_mark.line + 1}: {field}: {text}")

    def read(self, node: yaml.Node, schema: Any, field: str) -> Any:
        if isinstance(schema, Ignored):
            self.ignored.append(f"{self.source}:{node.start_mark.line + 1}: {field} {translated(schema.why)}")
            return None
        if isinstance(schema, OneOf):
            return self._choice(node, schema, field)
        if isinstance(schema, dict):
            return self._mapping(node, schema, field)
        if isinstance(schema, list):
            if not isinstance(node, yaml.SequenceNode):
                raise self.refuse(node, field, message("must be a list; write each entry after a dash"))
            return [self.read(entry, schema[0], f"{field}[{index}]") for index, entry in enumerate(node.value)]
        return self._value(node, schema, field)

    def _mapping(self, node: yaml.Node, schema: dict[str, Any], field: str) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise self.refuse(node, field or message("the file"), message("must have fields"))
        fields: dict[str, Any] = {}
        for key, value in node.value:
            name, place = str(key.value), f"{field}.{key.value}" if field else str(key.value)
            if name not in schema:
                near = nearest(name, schema)
                raise self.refuse(
                    key,
                    place,
                    message("is no field of eksctl") + (message("; did you mean {near}?", near=near) if near else ""),
                )
            if name in fields:
                raise self.refuse(key, place, message("stands there twice; keep one"))
            self.lines[place] = f"{self.source}:{key.start_mark.line + 1}"
            fields[name] = self.read(value, schema[name], place)
        return {**fields, LINE: f"{self.source}:{node.start_mark.line + 1}"}

    def _value(self, node: yaml.Node, kind: str, field: str) -> Any:
        value = yaml.SafeLoader("").construct_object(node, deep=True)
        match kind:
            case "int" | "percent" if isinstance(value, int) and not isinstance(value, bool):
                if value < 0:
                    raise self.refuse(node, field, message("{value} is below 0", value=value))
                if kind == PERCENT and value > 100:
                    raise self.refuse(node, field, message("{value} is above 100", value=value))
                return value
            case "float" if isinstance(value, int | float) and not isinstance(value, bool):
                if value < 0:
                    raise self.refuse(node, field, message("{value} is below 0", value=value))
                return float(value)
            case "bool" if isinstance(value, bool):
                return value
            case "text" if isinstance(value, str | int | float) and not isinstance(value, bool):
                return str(node.value)
            case "type" if isinstance(value, str):
                return self._instance_type(node, value, field)
            case "types" if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
                assert isinstance(node, yaml.SequenceNode)
                entries = zip(node.value, value, strict=True)
                return tuple(self._instance_type(entry, name, field) for entry, name in entries)
            case "texts" if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
                return tuple(value)
            case "map" if isinstance(value, dict):
                return {str(key): _plain(entry) for key, entry in value.items()}
            case "document" if isinstance(value, dict) and value.get("Statement"):
                return value
            case "taints" if isinstance(value, dict | list):
                return self._taints(node, value, field)
        raise self.refuse(node, field, message("{value!r} must be {kind}", value=value, kind=message(_MEANT[kind])))

    def _choice(self, node: yaml.Node, choices: OneOf, field: str) -> Any:
        chosen: Any = self._value(node, TEXTS if choices.many else TEXT, field)
        for text in chosen if choices.many else (chosen,):
            if text not in choices.choices:
                raise self.refuse(
                    node,
                    field,
                    message("{value!r} is none of {choices}", value=text, choices=", ".join(choices.choices)),
                )
        return chosen

    def _instance_type(self, node: yaml.Node, name: str, field: str) -> str:
        if name != MIXED and name not in catalog.specs():
            near = nearest(name, catalog.specs())
            hint = message("; did you mean {near}?", near=near) if near else ""
            raise self.refuse(node, field, message("no instance type {name!r}", name=name) + hint)
        return name

    def _taints(self, node: yaml.Node, value: Any, field: str) -> tuple[tuple[str, str, str], ...]:
        taints: list[tuple[str, str, str]] = []
        if isinstance(value, dict):
            for key, text in value.items():
                head, _, effect = str(text).rpartition(":")
                taints.append((str(key), head, effect))
        else:
            taints = [
                (str(entry.get("key", "")), str(entry.get("value", "")), str(entry.get("effect", "")))
                for entry in value
                if isinstance(entry, dict)
            ]
            if len(taints) < len(value) or not all(key for key, _, _ in taints):
                raise self.refuse(node, field, message("each taint needs a key and an effect"))
        for key, _, effect in taints:
            if effect not in _EFFECTS:
                raise self.refuse(
                    node,
                    field,
                    message(
                        "the effect of {key} is {effect!r}; use one of {effects}",
                        key=key,
                        effect=effect,
                        effects=", ".join(_EFFECTS),
                    ),
                )
        return tuple(taints)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _why(problem: OSError | UnicodeDecodeError) -> str:
    return system_error(problem) if isinstance(problem, OSError) else str(problem)


def read(path: Path) -> ClusterConfig:
    """The file. Raises ConfigRefused."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigRefused(
            message(
                "{path}: cannot be read ({problem}); name an eksctl ClusterConfig", path=path, problem=_why(problem)
            )
        ) from problem
    return parse(text, str(path))


def parse(text: str, source: str = "cluster.yaml") -> ClusterConfig:
    """A ClusterConfig as text. Raises ConfigRefused."""
    try:
        root = yaml_document.read(text, lambda: yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigRefused(
            f"{source}{line}: " + message("not YAML: {problem}", problem=getattr(problem, "problem", problem))
        ) from problem
    if root is None:
        raise ConfigRefused(message("{source}: is empty; write an eksctl ClusterConfig", source=source))
    reader = _Reader(source)
    document = reader.read(root, SCHEMA, "")
    if document.get("kind") != KIND or not str(document.get("apiVersion", "")).startswith(API_GROUP):
        raise ConfigRefused(
            message("{source}:1: must have apiVersion: eksctl.io/v1alpha5 and kind: ClusterConfig", source=source)
        )
    metadata = document.get("metadata") or {}
    for field in ("name", "region"):
        if not metadata.get(field):
            raise ConfigRefused(
                message("{source}:1: metadata.{field}: is missing; eksctl needs it", source=source, field=field)
            )
    _check_region(reader, metadata["region"])
    cidr = _cidr(reader.lines.get("vpc.cidr", source), document)
    iam = document.get("iam") or {}
    accounts = tuple(_service_account(entry) for entry in iam.get("serviceAccounts") or ())
    karpenter = document.get("karpenter")
    for field, is_present in (("iam.serviceAccounts", accounts), ("karpenter", karpenter is not None)):
        if is_present and not iam.get("withOIDC"):
            raise ConfigRefused(
                message(
                    "{source}: {field}: needs iam.withOIDC: true, without which no pod can take a role",
                    source=reader.lines[field],
                    field=field,
                )
            )
    groups = [_group(entry, False) for entry in document.get("nodeGroups") or ()]
    groups += [_group(entry, True) for entry in document.get("managedNodeGroups") or ()]
    _check_groups(reader, document, groups, metadata["region"])
    return ClusterConfig(
        name=metadata["name"], region=metadata["region"], version=metadata.get("version") or "", cidr=cidr,
        with_oidc=bool(iam.get("withOIDC")), groups=tuple(groups), ignored=tuple(reader.ignored),
        service_accounts=accounts,
        fargate_profiles=tuple(_fargate_profile(entry) for entry in document.get("fargateProfiles") or ()),
        karpenter=None if karpenter is None else KarpenterConfig(
            interruption_queue=bool(karpenter.get("withSpotInterruptionQueue"))
        ),
    )  # fmt: skip


def _check_region(reader: _Reader, region: str) -> None:
    if region not in catalog.regions():
        near = nearest(region, catalog.regions())
        hint = message("; did you mean {near}?", near=near) if near else ""
        refusal = message(
            "{line}: metadata.region: no region {region!r}", line=reader.lines["metadata.region"], region=region
        )
        raise ConfigRefused(refusal + hint)


def _cidr(source: str, document: Mapping[str, Any]) -> str:
    """The address range of the VPC; empty if the file names none."""
    cidr = (document.get("vpc") or {}).get("cidr") or ""
    if cidr:
        try:
            network = ipaddress.ip_network(cidr)
        except ValueError as problem:
            raise ConfigRefused(
                message(
                    "{source}: vpc.cidr: {problem}; write one such as 192.168.0.0/16", source=source, problem=problem
                )
            ) from problem
        if network.prefixlen != 16:
            raise ConfigRefused(
                message(
                    "{source}: vpc.cidr: {cidr} must be a /16, which the lab cuts into zones", source=source, cidr=cidr
                )
            )
    return str(cidr)


def _check_groups(reader: _Reader, document: Mapping[str, Any], groups: Sequence[NodeGroupConfig], region: str) -> None:
    """Names that differ, and zones that the region has."""
    places = [
        f"{kind}[{index}]"
        for kind in ("nodeGroups", "managedNodeGroups")
        for index in range(len(document.get(kind) or ()))
    ]
    zones = sorted(catalog.region(region).zones)
    names: set[str] = set()
    for place, group in zip(places, groups, strict=True):
        if group.name in names:
            raise ConfigRefused(
                message(
                    "{source}: two node groups are named {name}; give each a name of its own",
                    source=reader.lines[f"{place}.name"],
                    name=group.name,
                )
            )
        names.add(group.name)
        strange = next((zone for zone in group.zones if zone not in zones), None)
        if strange is not None:
            raise ConfigRefused(
                message(
                    "{source}: node group {name}: {region} has no zone {zone}; choose of {zones}",
                    source=reader.lines[f"{place}.availabilityZones"],
                    name=group.name,
                    region=region,
                    zone=strange,
                    zones=", ".join(zones),
                )
            )


def _instance_types(entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The types of a group; one that mixes them names them in its distribution."""
    line, mixed = entry[LINE], entry.get("instancesDistribution")
    single, several = entry.get("instanceType"), entry.get("instanceTypes")
    if mixed is not None and single and single != MIXED:
        raise ConfigRefused(
            message(
                "{source}: node group {name}: instanceType and instancesDistribution exclude each other",
                source=line,
                name=name,
            )
        )
    if (mixed is not None and not mixed.get("instanceTypes")) or (mixed is None and single == MIXED):
        raise ConfigRefused(
            message(
                "{source}: node group {name}: a group of mixed types names them in instancesDistribution.instanceTypes",
                source=line,
                name=name,
            )
        )
    if single and several:
        raise ConfigRefused(
            message(
                "{source}: node group {name}: instanceType and instanceTypes exclude each other",
                source=line,
                name=name,
            )
        )
    return tuple(several or (mixed or {}).get("instanceTypes") or (single or DEFAULT_TYPE,))


def _distribution(mixed: Mapping[str, Any], types: tuple[str, ...]) -> InstancesDistribution:
    share = mixed.get("onDemandPercentageAboveBaseCapacity")
    return InstancesDistribution(
        instance_types=types,
        on_demand_base=mixed.get("onDemandBaseCapacity") or 0,
        on_demand_percentage=100 if share is None else share,
        max_price=mixed.get("maxPrice"),
        spot_allocation_strategy=mixed.get("spotAllocationStrategy") or "",
    )


def _group(entry: Mapping[str, Any], managed: bool) -> NodeGroupConfig:
    source, name = entry[LINE], entry.get("name") or ""
    if not name:
        raise ConfigRefused(message("{source}: a node group has no name; give it one", source=source))
    types = _instance_types(entry, name)
    mixed, role = entry.get("instancesDistribution"), entry.get("iam") or {}
    least, most, desired = _sizes(source, name, entry)
    return NodeGroupConfig(
        name=name, managed=managed, instance_types=types, min_size=least, max_size=most, desired=desired,
        labels=entry.get("labels") or {}, taints=entry.get("taints") or (), tags=entry.get("tags") or {},
        volume_gib=entry.get("volumeSize") or DEFAULT_VOLUME_GIB, spot=bool(entry.get("spot")),
        distribution=None if mixed is None else _distribution(mixed, types), max_pods=entry.get("maxPodsPerNode"),
        zones=entry.get("availabilityZones") or (), suspended_processes=entry.get("asgSuspendProcesses") or (),
        propagate_tags=bool(entry.get("propagateASGTags")),
        role=NodeRoleConfig(
            policy_arns=role.get("attachPolicyARNs") or (), policy=role.get("attachPolicy"),
            auto_scaler=bool((role.get("withAddonPolicies") or {}).get("autoScaler")), line=role.get(LINE, source),
        ),
    )  # fmt: skip


def _fargate_profile(entry: Mapping[str, Any]) -> FargateProfileConfig:
    name, line = entry.get("name") or "", entry[LINE]
    if not name:
        raise ConfigRefused(message("{line}: fargateProfiles: a profile has no name; give it one", line=line))
    selectors = tuple(
        (str(selector.get("namespace") or ""), selector.get("labels") or {})
        for selector in entry.get("selectors") or ()
    )
    if not selectors or not all(namespace for namespace, _ in selectors):
        raise ConfigRefused(
            message("{line}: fargateProfiles: {name} needs selectors, each with a namespace", line=line, name=name)
        )
    return FargateProfileConfig(
        name=name, selectors=selectors, role_arn=entry.get("podExecutionRoleARN") or "", tags=entry.get("tags") or {}
    )


def _service_account(entry: Mapping[str, Any]) -> ServiceAccountConfig:
    metadata, line = entry.get("metadata") or {}, entry[LINE]
    if not metadata.get("name"):
        raise ConfigRefused(
            message("{line}: iam.serviceAccounts: metadata.name is missing; give the service account one", line=line)
        )
    well_known = entry.get("wellKnownPolicies") or {}
    account = ServiceAccountConfig(
        name=metadata["name"], namespace=metadata.get("namespace") or "default", line=line,
        labels=metadata.get("labels") or {}, annotations=metadata.get("annotations") or {},
        policy_arns=entry.get("attachPolicyARNs") or (), policy=entry.get("attachPolicy"),
        auto_scaler=bool(well_known.get("autoScaler")), ebs_csi_controller=bool(well_known.get("ebsCSIController")),
        role_name=entry.get("roleName") or "", role_arn=entry.get("attachRoleARN") or "",
        role_only=bool(entry.get("roleOnly")),
    )  # fmt: skip
    granted = account.policy_arns or account.policy or well_known
    if not granted and not account.role_arn:
        raise ConfigRefused(
            message(
                "{line}: iam.serviceAccounts: {account} gets no policy; name one with attachPolicyARNs, "
                "attachPolicy or wellKnownPolicies, or a role with attachRoleARN",
                line=line,
                account=account.name,
            )
        )
    if granted and account.role_arn:
        raise ConfigRefused(
            message(
                "{line}: iam.serviceAccounts: {account}: attachRoleARN and policies exclude each other; keep one",
                line=line,
                account=account.name,
            )
        )
    return account


def _sizes(source: str, name: str, entry: Mapping[str, Any]) -> tuple[int, int, int]:
    """eksctl's defaults: without bounds both are the desired capacity, without that the minimum is."""
    least, most, desired = entry.get("minSize"), entry.get("maxSize"), entry.get("desiredCapacity")
    if desired is None:
        desired = least if least is not None else min(DEFAULT_SIZE, most) if most is not None else DEFAULT_SIZE
    least = desired if least is None else least
    most = max(desired, least) if most is None else most
    if not least <= desired <= most:
        raise ConfigRefused(
            message(
                "{source}: node group {name}: desiredCapacity {desired} must lie between minSize {least} "
                "and maxSize {most}",
                source=source,
                name=name,
                desired=desired,
                least=least,
                most=most,
            )
        )
    return least, most, desired
