"""Ways out of what the API server refuses: a pattern said in words, and what each rule wants instead.

The server's own words name the rule; who wrote the manifest wants to know what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.kinds.common import DURATION, DURATION_OR_NEVER, LABEL_KEY, LABEL_VALUE
from dovetail.model.kinds.devices import VOLUME_SIZE
from dovetail.model.kinds.kubelet import THRESHOLD
from dovetail.model.kinds.nodepool import BUDGET_DURATION, BUDGET_NODES, BUDGET_SCHEDULE
from dovetail.model.kinds.overlay import ADJUSTMENT
from dovetail.model.kinds.schema import QUANTITY
from dovetail.model.kinds.v1beta1 import LOOSE_DURATION
from dovetail.model.lint.findings import Edit, Finding

_NEVER = ("duration", "such as 30s, 15m, 720h, 1h30m, or Never")

#: What a pattern asks for, and an example.
FORMS: Mapping[str, tuple[str, str]] = {
    LABEL_KEY: ("label key", "such as team or example.com/team"),
    LABEL_VALUE: ("label value", "letters, digits, and - _ . between them"),
    DURATION: ("duration", "such as 30s, 15m or 1h30m"),
    DURATION_OR_NEVER: _NEVER,
    LOOSE_DURATION: _NEVER,
    BUDGET_DURATION: ("duration of hours and minutes", "such as 8h, 30m or 1h30m"),
    BUDGET_NODES: ("number of nodes", 'such as "5" or "10%"'),
    BUDGET_SCHEDULE: ("schedule", "such as 0 9 * * 1-5, or @daily"),
    QUANTITY: ("quantity", "such as 500m, 4, 8Gi or 100G"),
    THRESHOLD: ("threshold", "such as 5% or 100Mi"),
    VOLUME_SIZE: ("volume size", "such as 20Gi or 1T"),
    ADJUSTMENT: ("price adjustment", 'such as "+0.05", "-10%" or "+5%"'),
    r"^\d+(\.\d+)?$": ("price", 'dollars an hour, such as "0.35"'),
    r"subnet-[0-9a-z]+": ("subnet id", "such as subnet-09fa4a0a8f233a921; a name is a tag: tags: {Name: NAME}"),
    r"sg-[0-9a-z]+": ("security group id", "such as sg-063d7acfb4b06c82c; for a name there is name:"),
    r"ami-[0-9a-z]+": ("image id", "such as ami-0abcdef1234567890; for a name there is name:"),
    r"^cr-[0-9a-z]+$": ("capacity reservation id", "such as cr-0123456789abcdef0"),
    r"^pg-[0-9a-z]+$": ("placement group id", "such as pg-0123456789abcdef0; for a name there is name:"),
    r"^[0-9]{12}$": ("account", 'twelve digits in quotes, such as "012345678901"'),
    r"^[^/]*$": ("API group", "such as karpenter.k8s.aws, without a version"),
}

#: What to write where a rule is broken, by words of its message; the first that fits counts.
RULES: tuple[tuple[str, str], ...] = (
    ("exactly one of ['role', 'instanceProfile']", "write role: NAME, or instanceProfile: NAME, and not both"),
    ("role cannot be empty", "the name of the IAM role of your nodes, such as KarpenterNodeRole-CLUSTER"),
    ("instanceProfile cannot be empty", "the name of an instance profile"),
    ("instanceProfile' to 'role'", "make a node class of another name"),
    ("immutable", "make an object of another name, and delete this one"),
    ("must specify amiFamily", "add amiFamily, or write  alias: al2023@latest  as the only term"),
    ("if set, amiFamily must be", "delete amiFamily: the alias says it"),
    ("amiSelectorTerms is required", "add amiSelectorTerms, such as  - id: ami-0abcdef1234567890"),
    ("cannot be set with a combination of other amiSelectorTerms", "keep the alias alone, or the other terms"),
    ("'alias' is improperly formatted", "such as al2023@latest or bottlerocket@v1.20.3"),
    ("family is not supported", "such as al2023@latest"),
    ("windows families", "write @latest"),
    ("SelectorTerms cannot be empty", "add a term, such as  - tags: {karpenter.sh/discovery: CLUSTER}"),
    ("expected at least one, got none", "give each term one of these fields"),
    ("mutually exclusive", "give the other fields a term of their own, or delete them"),
    ("empty tag keys or values", 'name the tag; the value "*" stands for any'),
    ("empty tag keys", "name the tag"),
    ("restricted tag", "delete the tag: it is written for you"),
    ("only one blockDeviceMappings with rootVolume", "keep rootVolume: true on one of them"),
    ("snapshotID or volumeSize", "add volumeSize, such as 100Gi"),
    ("snapshotID must be set", "add snapshotID, or delete volumeInitializationRate"),
    ("must include a primary interface", "add {networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}"),
    ("duplicate networkCardIndex", "give each interface a place of its own, and each card one efa-only at most"),
    ("tcpEstablishedTimeout", "add one of them, or delete connectionTracking"),
    ("OwnerKey does not have a matching", "name the same signals in evictionSoft and evictionSoftGracePeriod"),
    ("valid keys for", "delete the other keys"),
    ("negative resource quantity", "write no minus"),
    ("imageGCHighThresholdPercent must be greater", "raise the high one, or lower the low one"),
    ("'schedule' must be set with 'duration'", "add the other, such as  schedule: 0 9 * * 1-5  and  duration: 8h"),
    ("consolidateAfter cannot be combined", "delete consolidateAfter, or write  consolidationPolicy: WhenEmpty"),
    ("consolidateAfter must be specified", "add consolidateAfter, such as 30s"),
    ("a single positive integer value", 'write one whole number, such as  values: ["4"]'),
    ("must have a value defined", "add values, or write  operator: Exists"),
    ("requirements with 'minValues'", "list more values, or lower minValues"),
    ("must have values", "add values"),
    ("only 'limits.nodes'", "delete the other limits: replicas says how many nodes there are"),
    ("'weight' is not supported", "delete weight: pods do not choose a static pool"),
    ("between static", "make a pool of another name"),
    ("group may not be empty", "write karpenter.k8s.aws"),
    ("kind may not be empty", "write EC2NodeClass"),
    ("name may not be empty", "the name of a node class"),
    ("'price' and 'priceAdjustment'", "keep one of them"),
    ("invalid resource restricted", "an overlay may add extended resources only"),
    ("podTemplateRef is set", "add replicas, or limits"),
    ("either PodTemplateRef or ScalableRef", "keep one of them"),
    ("provider, providerRef", "keep providerRef"),
    ("ttlSecondsAfterEmpty, consolidation.enabled", "keep consolidation: it gives empty nodes back too"),
    ("missing field(s): subnetSelector", "add it, such as  subnetSelector: {karpenter.sh/discovery: CLUSTER}"),
    ("missing field(s): securityGroupSelector", "add it, such as  securityGroupSelector: {aws-ids: sg-01234567}"),
    ("missing field(s): amiSelector", "add it, such as  amiSelector: {aws::ids: ami-0abcdef1234567890}"),
    ("launchTemplate stands alone", "delete the others, or launchTemplate"),
    ("is restricted", "labels of that domain are not yours to set"),
    ("might interfere with the internal", "labels of that domain are not yours to ask for"),
    ("duplicate taint", "keep one of them"),
    ("valid values", "write one of those expected"),
    ("a valid label must", "letters, digits, and - _ . between them, 63 at most"),
    ("no more than 63 bytes", "write a shorter one"),
    ("name part", "such as team or example.com/team"),
    ("prefix part", "such as team or example.com/team"),
    ("a valid label key", "such as team or example.com/team"),
    ("no more than 2562047h", "write Never, or a shorter time"),
    ("invalid capacity", "an overlay may add extended resources only"),
)


def form(pattern: str) -> tuple[str, str]:
    """What a pattern asks for, and an example."""
    return FORMS.get(pattern, ("value for this field", f"it must match {pattern}"))


def suggestion(message: str) -> str:
    """What to write where a rule is broken, or nothing if it is unknown."""
    return next((hint for words, hint in RULES if words in message), "")


# Make the safe edits. Comments and order stay: only the spans that were wrong are touched.


def fixed(text: str, findings: Iterable[Finding]) -> tuple[str, int]:
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
