"""Where a pod may run: affinity, tolerations, topology spread, host aliases, DNS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.addresses import valid_ip
from dovetail.model.validation.field_errors import FieldError, duplicate, forbidden, invalid, required, unsupported
from dovetail.model.validation.selectors import label_name, label_selector, node_selector, node_term

Spec = Mapping[str, Any]
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICIES = ("Honor", "Ignore")


def affinity(value: Spec, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    node = value.get("nodeAffinity")
    if node:
        at = f"{path}.nodeAffinity"
        if "requiredDuringSchedulingIgnoredDuringExecution" in node:
            name = "requiredDuringSchedulingIgnoredDuringExecution"
            found += node_selector(node[name], f"{at}.{name}")
        name = "preferredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(node.get(name, ())):
            found += _weight(term, f"{at}.{name}[{index}]")
            found += node_term(term.get("preference", {}), f"{at}.{name}[{index}].preference", lenient=True)
    for kind in ("podAffinity", "podAntiAffinity"):
        if value.get(kind):
            found += _pod_affinity(value[kind], f"{path}.{kind}")
    return found


def _weight(term: Spec, path: str) -> list[FieldError]:
    weight = term.get("weight", 0)
    return [] if 0 < weight <= 100 else [invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _pod_affinity(value: Spec, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(value.get(name, ())):
        found += _affinity_term(term, f"{path}.{name}[{index}]")
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(value.get(name, ())):
        at = f"{path}.{name}[{index}]"
        found += _weight(weighted, at)
        found += _affinity_term(weighted.get("podAffinityTerm", {}), f"{at}.podAffinityTerm")
    return found


def _affinity_term(term: Spec, path: str) -> list[FieldError]:
    found = label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    found += label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces", ()):
        found += [invalid(f"{path}.namespace", name, text) for text in formats.label(name)]
    found += _label_keys(term, path)
    key = term.get("topologyKey", "")
    if not key:
        found.append(required(f"{path}.topologyKey", "can not be empty"))
    return found + label_name(key, f"{path}.topologyKey")


def _label_keys(term: Spec, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    selector = term.get("labelSelector")
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(field, ())
        if keys and selector is None:
            found.append(forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set"))
        elif keys:
            for index, key in enumerate(keys):
                found += label_name(key, f"{path}.{field}[{index}]")
    found += _selected_twice(term, path)
    for index, key in enumerate(term.get("matchLabelKeys", ())):
        if key in term.get("mismatchLabelKeys", ()):
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            found.append(invalid(f"{path}.matchLabelKeys[{index}]", key, text))
    return found


def taint_effect(effect: str, path: str) -> list[FieldError]:
    if not effect:
        return [required(path)]
    return [] if effect in EFFECTS else [unsupported(path, effect, EFFECTS)]


def tolerations(entries: Sequence[Spec], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, toleration in enumerate(entries):
        found += _toleration(toleration, f"{path}[{index}]")
    return found


def _toleration(toleration: Spec, at: str) -> list[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    found = label_name(key, f"{at}.key") if key else []
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(invalid(f"{at}.operator", operator, text))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        found.append(invalid(f"{at}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
    if operator in ("Equal", ""):
        texts = formats.label_value(value)
        if texts:
            found.append(invalid(f"{at}.operator", value, ";".join(texts)))
    elif operator == "Exists":
        if value:
            found.append(invalid(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'"))
    elif operator in ("Lt", "Gt"):
        found.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists", "Lt", "Gt")))
    else:
        found.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in EFFECTS:
        found.append(unsupported(f"{at}.effect", effect, EFFECTS))
    return found


def spread(constraints: Sequence[Spec], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, constraint in enumerate(constraints):
        at = f"{path}[{index}]"
        action, key = constraint.get("whenUnsatisfiable", ""), constraint.get("topologyKey", "")
        if constraint.get("maxSkew", 0) <= 0:
            found.append(invalid(f"{at}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
        if not key:
            found.append(required(f"{at}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            found.append(unsupported(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        for other in constraints[index + 1 :]:
            if (other.get("topologyKey", ""), other.get("whenUnsatisfiable", "")) == (key, action):
                found.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
                break
        found += _spread_options(constraint, at, action)
        found += label_selector(constraint.get("labelSelector"), f"{at}.labelSelector")
    return found


def _spread_options(constraint: Spec, at: str, action: str) -> list[FieldError]:
    found: list[FieldError] = []
    domains = constraint.get("minDomains")
    if domains is not None:
        if domains <= 0:
            found.append(invalid(f"{at}.minDomains", domains, "must be greater than zero"))
        if action != "DoNotSchedule":
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            found.append(invalid(f"{at}.minDomains", domains, text))
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if constraint.get(field, "Honor") not in _POLICIES:
            found.append(unsupported(f"{at}.{field}", constraint[field], _POLICIES))
    return found + _label_keys(constraint, at)


def _selected_twice(term: Spec, at: str) -> list[FieldError]:
    """A key of matchLabelKeys may not be in the selector, where the pod's own value of it has been added already."""
    selector = term.get("labelSelector") or {}
    keys = term.get("matchLabelKeys", ())
    text = "exists in both matchLabelKeys and labelSelector"
    seen, found = set(selector.get("matchLabels", ())), list[FieldError]()
    for entry in selector.get("matchExpressions", ()):
        key = entry.get("key")
        if key in keys and key in seen:
            found.append(invalid(f"{at}[{keys.index(key)}]", key, text))
        seen.add(key)
    return found


def host_aliases(entries: Sequence[Spec], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, alias in enumerate(entries):
        found += valid_ip(alias.get("ip", ""), f"{path}[{index}].ip")
        for number, name in enumerate(alias.get("hostnames", ())):
            at = f"{path}[{index}].hostnames[{number}]"
            found += [invalid(at, name, text) for text in formats.subdomain(name)]
    return found


_SEARCH = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")


def dns(spec: Spec, path: str) -> list[FieldError]:
    policy, config, at = spec.get("dnsPolicy", ""), spec.get("dnsConfig"), f"{path}.dnsConfig"
    if policy == "None":
        if config is None:
            return [required(at, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{at}.nameservers", text)]
    if not config:
        return []
    servers, searches = config.get("nameservers", ()), config.get("searches", ())
    found: list[FieldError] = []
    if len(servers) > 3:
        found.append(invalid(f"{at}.nameservers", list(servers), "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        found += valid_ip(server, f"{at}.nameservers[{index}]")
    if len(searches) > 32:
        found.append(invalid(f"{at}.searches", list(searches), "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        text = "must not have more than 2048 characters (including spaces) in the search list"
        found.append(invalid(f"{at}.searches", list(searches), text))
    for index, search in enumerate(searches):
        name = search.removesuffix(".") if search != "." else "a"
        if not _SEARCH.fullmatch(name):
            text = (
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
                "and must start and end with an alphanumeric character"
            )
            found.append(
                invalid(f"{at}.searches[{index}]", name, formats.regex_text(text, _SEARCH.pattern, "example.com"))
            )
    for index, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            found.append(required(f"{at}.options[{index}]", "must not be empty"))
    return found
