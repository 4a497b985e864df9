"""The fields of an eksctl ClusterConfig, and a reader that checks a document against them.

Fields that have no meaning in a lab are listed; a field that does not exist, or a value that cannot be, is refused
with its line and a hint.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from dovetail.cloud.aws import catalog
from dovetail.lab.aws.eks_images import FAMILIES, VERSIONS
from dovetail.language import message, source, translated
from dovetail.model.spelling import nearest

#: What eksctl calls the type of a group with an instances distribution.
MIXED = "mixed"
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


class ConfigRefused(ValueError):
    """The file cannot be used; the text names the line, the field and the remedy."""


#: Fields by place: a kind of value, a table of fields, a list of one table, or a reason why it means nothing here.
TEXT, INT, FLOAT, BOOL, TEXTS, MAP, TAINTS = "text", "int", "float", "bool", "texts", "map", "taints"
DOCUMENT, PERCENT, TYPE, TYPES, FAMILY = "document", "percent", "type", "types", "family"
_NOTHING = source("means nothing in the lab")
#: Families of images that eksctl knows and the lab has none of.
_OTHER_FAMILIES = frozenset({
    "Ubuntu2004", "Ubuntu2204", "UbuntuPro2204", "Ubuntu2404", "UbuntuPro2404", "WindowsServer2019CoreContainer",
    "WindowsServer2019FullContainer", "WindowsServer2022CoreContainer", "WindowsServer2022FullContainer",
})  # fmt: skip
#: Under which a table keeps where it stands; no field of eksctl is called so.
LINE = "#"
_MEANT = {
    INT: source("a whole number"),
    PERCENT: source("a whole number"),
    TYPE: source("a text"),
    FAMILY: source("a text"),
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
    "amiFamily": FAMILY, "ami": _OFF, "volumeType": _OFF, "volumeEncrypted": _OFF, "volumeKmsKeyID": _OFF,
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


class EksctlReader:
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
            case "family" if isinstance(value, str):
                return self._ami_family(node, value, field)
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

    def _ami_family(self, node: yaml.Node, name: str, field: str) -> str:
        """Empty for a family whose images the lab has not."""
        if name in FAMILIES:
            return name
        if name not in _OTHER_FAMILIES:
            near = nearest(name, (*FAMILIES, *_OTHER_FAMILIES))
            hint = message("; did you mean {near}?", near=near) if near else ""
            raise self.refuse(node, field, message("no family of images {name!r}", name=name) + hint)
        line = f"{self.source}:{node.start_mark.line + 1}"
        self.ignored.append(
            message(
                "{line}: {field}: the lab has no images of {name}; Amazon Linux 2023 runs instead",
                line=line,
                field=field,
                name=name,
            )
        )
        return ""

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
