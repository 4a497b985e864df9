"""An eksctl ClusterConfig as the lab reads it: the cluster, its network and its node groups.

`dovetail.lab.eksctl_fields` checks each field by itself; what several fields say together is checked here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.cloud.aws import catalog
from dovetail.lab.aws.eks_images import AMAZON_LINUX_2, LAST_AL2_MINOR, has_al2
from dovetail.lab.eksctl_fields import LINE, MIXED, SCHEMA, ConfigRefused, EksctlReader
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.model import yaml_document
from dovetail.model.spelling import nearest

KIND = "ClusterConfig"
API_GROUP = "eksctl.io/"
DEFAULT_SIZE = 2
DEFAULT_TYPE = "m5.large"
DEFAULT_VOLUME_GIB = 80


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
    #: Empty: Amazon Linux 2023.
    ami_family: str = ""
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
    reader = EksctlReader(source)
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


def _check_region(reader: EksctlReader, region: str) -> None:
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


def _check_groups(
    reader: EksctlReader, document: Mapping[str, Any], groups: Sequence[NodeGroupConfig], region: str
) -> None:
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
        if group.ami_family == AMAZON_LINUX_2 and not has_al2(document["metadata"].get("version") or ""):
            raise ConfigRefused(
                message(
                    "{source}: node group {name}: Amazon Linux 2 has no images from Kubernetes 1.{minor} on; write "
                    "amiFamily: AmazonLinux2023",
                    source=reader.lines[f"{place}.amiFamily"],
                    name=group.name,
                    minor=LAST_AL2_MINOR + 1,
                )
            )
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
        propagate_tags=bool(entry.get("propagateASGTags")), ami_family=entry.get("amiFamily") or "",
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
