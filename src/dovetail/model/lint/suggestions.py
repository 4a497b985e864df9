"""Ways out of what the API server refuses: a pattern said in words, and what each rule wants instead.

The server's own words name the rule; who wrote the manifest wants to know what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.language import message, source, translated
from dovetail.model.kinds.common import DURATION, DURATION_OR_NEVER, LABEL_KEY, LABEL_VALUE
from dovetail.model.kinds.devices import VOLUME_SIZE
from dovetail.model.kinds.kubelet import THRESHOLD
from dovetail.model.kinds.nodepool import BUDGET_DURATION, BUDGET_NODES, BUDGET_SCHEDULE
from dovetail.model.kinds.overlay import ADJUSTMENT
from dovetail.model.kinds.schema import QUANTITY
from dovetail.model.kinds.v1beta1 import LOOSE_DURATION
from dovetail.model.lint.findings import Edit, LintFinding

_NEVER = (source("duration"), source("such as 30s, 15m, 720h, 1h30m, or Never"))

#: What a pattern asks for, and an example.
FORMS: Mapping[str, tuple[str, str]] = {
    LABEL_KEY: (source("label key"), source("such as team or example.com/team")),
    LABEL_VALUE: (source("label value"), source("letters, digits, and - _ . between them")),
    DURATION: (source("duration"), source("such as 30s, 15m or 1h30m")),
    DURATION_OR_NEVER: _NEVER,
    LOOSE_DURATION: _NEVER,
    BUDGET_DURATION: (source("duration of hours and minutes"), source("such as 8h, 30m or 1h30m")),
    BUDGET_NODES: (source("number of nodes"), source('such as "5" or "10%"')),
    BUDGET_SCHEDULE: (source("schedule"), source("such as 0 9 * * 1-5, or @daily")),
    QUANTITY: (source("quantity"), source("such as 500m, 4, 8Gi or 100G")),
    THRESHOLD: (source("threshold"), source("such as 5% or 100Mi")),
    VOLUME_SIZE: (source("volume size"), source("such as 20Gi or 1T")),
    ADJUSTMENT: (source("price adjustment"), source('such as "+0.05", "-10%" or "+5%"')),
    r"^\d+(\.\d+)?$": (source("price"), source('dollars an hour, such as "0.35"')),
    r"subnet-[0-9a-z]+": (
        source("subnet id"),
        source("such as subnet-09fa4a0a8f233a921; a name is a tag: tags: {Name: NAME}"),
    ),
    r"sg-[0-9a-z]+": (source("security group id"), source("such as sg-063d7acfb4b06c82c; for a name there is name:")),
    r"ami-[0-9a-z]+": (source("image id"), source("such as ami-0abcdef1234567890; for a name there is name:")),
    r"^cr-[0-9a-z]+$": (source("capacity reservation id"), source("such as cr-0123456789abcdef0")),
    r"^pg-[0-9a-z]+$": (
        source("placement group id"),
        source("such as pg-0123456789abcdef0; for a name there is name:"),
    ),
    r"^[0-9]{12}$": (source("account"), source('twelve digits in quotes, such as "012345678901"')),
    r"^[^/]*$": (source("API group"), source("such as karpenter.k8s.aws, without a version")),
}

#: What to write where a rule is broken, by words of its message; the first that fits counts.
RULES: tuple[tuple[str, str], ...] = (
    ("exactly one of ['role', 'instanceProfile']", source("write role: NAME, or instanceProfile: NAME, and not both")),
    ("role cannot be empty", source("the name of the IAM role of your nodes, such as KarpenterNodeRole-CLUSTER")),
    ("instanceProfile cannot be empty", source("the name of an instance profile")),
    ("instanceProfile' to 'role'", source("make a node class of another name")),
    ("immutable", source("make an object of another name, and delete this one")),
    ("must specify amiFamily", source("add amiFamily, or write  alias: al2023@latest  as the only term")),
    ("if set, amiFamily must be", source("delete amiFamily: the alias says it")),
    ("amiSelectorTerms is required", source("add amiSelectorTerms, such as  - id: ami-0abcdef1234567890")),
    ("cannot be set with a combination of other amiSelectorTerms", source("keep the alias alone, or the other terms")),
    ("'alias' is improperly formatted", source("such as al2023@latest or bottlerocket@v1.20.3")),
    ("family is not supported", source("such as al2023@latest")),
    ("windows families", source("write @latest")),
    ("SelectorTerms cannot be empty", source("add a term, such as  - tags: {karpenter.sh/discovery: CLUSTER}")),
    ("expected at least one, got none", source("give each term one of these fields")),
    ("mutually exclusive", source("give the other fields a term of their own, or delete them")),
    ("empty tag keys or values", source('name the tag; the value "*" stands for any')),
    ("empty tag keys", source("name the tag")),
    ("restricted tag", source("delete the tag: it is written for you")),
    ("only one blockDeviceMappings with rootVolume", source("keep rootVolume: true on one of them")),
    ("snapshotID or volumeSize", source("add volumeSize, such as 100Gi")),
    ("snapshotID must be set", source("add snapshotID, or delete volumeInitializationRate")),
    ("must include a primary interface", source("add {networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}")),
    (
        "duplicate networkCardIndex",
        source("give each interface a place of its own, and each card one efa-only at most"),
    ),
    ("tcpEstablishedTimeout", source("add one of them, or delete connectionTracking")),
    ("OwnerKey does not have a matching", source("name the same signals in evictionSoft and evictionSoftGracePeriod")),
    ("valid keys for", source("delete the other keys")),
    ("negative resource quantity", source("write no minus")),
    ("imageGCHighThresholdPercent must be greater", source("raise the high one, or lower the low one")),
    (
        "'schedule' must be set with 'duration'",
        source("add the other, such as  schedule: 0 9 * * 1-5  and  duration: 8h"),
    ),
    (
        "consolidateAfter cannot be combined",
        source("delete consolidateAfter, or write  consolidationPolicy: WhenEmpty"),
    ),
    ("consolidateAfter must be specified", source("add consolidateAfter, such as 30s")),
    ("a single positive integer value", source('write one whole number, such as  values: ["4"]')),
    ("must have a value defined", source("add values, or write  operator: Exists")),
    ("requirements with 'minValues'", source("list more values, or lower minValues")),
    ("must have values", source("add values")),
    ("only 'limits.nodes'", source("delete the other limits: replicas says how many nodes there are")),
    ("'weight' is not supported", source("delete weight: pods do not choose a static pool")),
    ("between static", source("make a pool of another name")),
    ("group may not be empty", source("write karpenter.k8s.aws")),
    ("kind may not be empty", source("write EC2NodeClass")),
    ("name may not be empty", source("the name of a node class")),
    ("'price' and 'priceAdjustment'", source("keep one of them")),
    ("invalid resource restricted", source("an overlay may add extended resources only")),
    ("podTemplateRef is set", source("add replicas, or limits")),
    ("either PodTemplateRef or ScalableRef", source("keep one of them")),
    ("provider, providerRef", source("keep providerRef")),
    ("ttlSecondsAfterEmpty, consolidation.enabled", source("keep consolidation: it gives empty nodes back too")),
    ("missing field(s): subnetSelector", source("add it, such as  subnetSelector: {karpenter.sh/discovery: CLUSTER}")),
    (
        "missing field(s): securityGroupSelector",
        source("add it, such as  securityGroupSelector: {aws-ids: sg-01234567}"),
    ),
    ("missing field(s): amiSelector", source("add it, such as  amiSelector: {aws::ids: ami-0abcdef1234567890}")),
    ("launchTemplate stands alone", source("delete the others, or launchTemplate")),
    ("is restricted", source("labels of that domain are not yours to set")),
    ("might interfere with the internal", source("labels of that domain are not yours to ask for")),
    ("duplicate taint", source("keep one of them")),
    ("valid values", source("write one of those expected")),
    ("a valid label must", source("letters, digits, and - _ . between them, 63 at most")),
    ("no more than 63 bytes", source("write a shorter one")),
    ("name part", source("such as team or example.com/team")),
    ("prefix part", source("such as team or example.com/team")),
    ("a valid label key", source("such as team or example.com/team")),
    ("no more than 2562047h", source("write Never, or a shorter time")),
    ("invalid capacity", source("an overlay may add extended resources only")),
)


def form(pattern: str) -> tuple[str, str]:
    """What a pattern asks for, and an example."""
    what, example = FORMS.get(pattern, ("", ""))
    if not what:
        return message("value for this field"), message("it must match {pattern}", pattern=pattern)
    return translated(what), translated(example)


def is_duration(pattern: str) -> bool:
    return pattern in (DURATION, DURATION_OR_NEVER, LOOSE_DURATION, BUDGET_DURATION)


def suggestion(rule: str) -> str:
    """What to write where a rule is broken, or nothing if it is unknown."""
    return next((translated(hint) for words, hint in RULES if words in rule), "")


# Make the safe edits. Comments and order stay: only the spans that were wrong are touched.


def fixed(text: str, findings: Iterable[LintFinding]) -> tuple[str, int]:
    """The text with every safe edit made, and how many that were; edits that overlap are made one at a time."""
    edits = sorted(
        {finding.edit for finding in findings if finding.edit is not None}, key=lambda edit: (edit.start, edit.end)
    )
    chosen: list[Edit] = []
    for edit in edits:
        if not chosen or edit.start >= chosen[-1].end:
            chosen.append(edit)
    for edit in reversed(chosen):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text, len(chosen)
