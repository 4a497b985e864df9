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
    errors: list[FieldError] = []
    node = value.get("nodeAffinity")
    if node:
        field_path = f"{path}.nodeAffinity"
        if "requiredDuringSchedulingIgnoredDuringExecution" in node:
            name = "requiredDuringSchedulingIgnoredDuringExecution"
            errors += node_selector(node[name], f"{field_path}.{name}")
        name = "preferredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(node.get(name, ())):
            errors += _weight(term, f"{field_path}.{name}[{index}]")
            errors += node_term(term.get("preference", {}), f"{field_path}.{name}[{index}].preference", lenient=True)
    for kind in ("podAffinity", "podAntiAffinity"):
        if value.get(kind):
            errors += _pod_affinity(value[kind], f"{path}.{kind}")
    return errors


def _weight(term: Spec, path: str) -> list[FieldError]:
    weight = term.get("weight", 0)
    return [] if 0 < weight <= 100 else [invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _pod_affinity(value: Spec, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(value.get(name, ())):
        errors += _affinity_term(term, f"{path}.{name}[{index}]")
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(value.get(name, ())):
        field_path = f"{path}.{name}[{index}]"
        errors += _weight(weighted, field_path)
        errors += _affinity_term(weighted.get("podAffinityTerm", {}), f"{field_path}.podAffinityTerm")
    return errors


def _affinity_term(term: Spec, path: str) -> list[FieldError]:
    errors = label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    errors += label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces", ()):
        errors += [invalid(f"{path}.namespace", name, text) for text in formats.label(name)]
    errors += _label_keys(term, path)
    key = term.get("topologyKey", "")
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    return errors + label_name(key, f"{path}.topologyKey")


def _label_keys(term: Spec, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    selector = term.get("labelSelector")
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(field, ())
        if keys and selector is None:
            errors.append(forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set"))
        elif keys:
            for index, key in enumerate(keys):
                errors += label_name(key, f"{path}.{field}[{index}]")
    errors += _selected_twice(term, path)
    for index, key in enumerate(term.get("matchLabelKeys", ())):
        if key in term.get("mismatchLabelKeys", ()):
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid(f"{path}.matchLabelKeys[{index}]", key, text))
    return errors


def taint_effect(effect: str, path: str) -> list[FieldError]:
    if not effect:
        return [required(path)]
    return [] if effect in EFFECTS else [unsupported(path, effect, EFFECTS)]


def tolerations(entries: Sequence[Spec], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, toleration in enumerate(entries):
        errors += _toleration(toleration, f"{path}[{index}]")
    return errors


def _toleration(toleration: Spec, field_path: str) -> list[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    errors = label_name(key, f"{field_path}.key") if key else []
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{field_path}.operator", operator, text))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        errors.append(
            invalid(f"{field_path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        )
    if operator in ("Equal", ""):
        texts = formats.label_value(value)
        if texts:
            errors.append(invalid(f"{field_path}.operator", value, ";".join(texts)))
    elif operator == "Exists":
        if value:
            errors.append(invalid(f"{field_path}.operator", value, "value must be empty when `operator` is 'Exists'"))
    elif operator in ("Lt", "Gt"):
        errors.append(unsupported(f"{field_path}.operator", operator, ("Equal", "Exists", "Lt", "Gt")))
    else:
        errors.append(unsupported(f"{field_path}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in EFFECTS:
        errors.append(unsupported(f"{field_path}.effect", effect, EFFECTS))
    return errors


def spread(constraints: Sequence[Spec], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, constraint in enumerate(constraints):
        field_path = f"{path}[{index}]"
        action, key = constraint.get("whenUnsatisfiable", ""), constraint.get("topologyKey", "")
        if constraint.get("maxSkew", 0) <= 0:
            errors.append(invalid(f"{field_path}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
        if not key:
            errors.append(required(f"{field_path}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            errors.append(unsupported(f"{field_path}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        for other in constraints[index + 1 :]:
            if (other.get("topologyKey", ""), other.get("whenUnsatisfiable", "")) == (key, action):
                errors.append(duplicate(f"{field_path}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
                break
        errors += _spread_options(constraint, field_path, action)
        errors += label_selector(constraint.get("labelSelector"), f"{field_path}.labelSelector")
    return errors


def _spread_options(constraint: Spec, field_path: str, action: str) -> list[FieldError]:
    errors: list[FieldError] = []
    domains = constraint.get("minDomains")
    if domains is not None:
        if domains <= 0:
            errors.append(invalid(f"{field_path}.minDomains", domains, "must be greater than zero"))
        if action != "DoNotSchedule":
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            errors.append(invalid(f"{field_path}.minDomains", domains, text))
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if constraint.get(field, "Honor") not in _POLICIES:
            errors.append(unsupported(f"{field_path}.{field}", constraint[field], _POLICIES))
    return errors + _label_keys(constraint, field_path)


def _selected_twice(term: Spec, field_path: str) -> list[FieldError]:
    """A key of matchLabelKeys may not be in the selector, where the pod's own value of it has been added already."""
    selector = term.get("labelSelector") or {}
    keys = term.get("matchLabelKeys", ())
    text = "exists in both matchLabelKeys and labelSelector"
    seen, errors = set(selector.get("matchLabels", ())), list[FieldError]()
    for entry in selector.get("matchExpressions", ()):
        key = entry.get("key")
        if key in keys and key in seen:
            errors.append(invalid(f"{field_path}[{keys.index(key)}]", key, text))
        seen.add(key)
    return errors


def host_aliases(entries: Sequence[Spec], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, alias in enumerate(entries):
        errors += valid_ip(alias.get("ip", ""), f"{path}[{index}].ip")
        for number, name in enumerate(alias.get("hostnames", ())):
            field_path = f"{path}[{index}].hostnames[{number}]"
            errors += [invalid(field_path, name, text) for text in formats.subdomain(name)]
    return errors


_SEARCH = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")


def dns(spec: Spec, path: str) -> list[FieldError]:
    policy, config, field_path = spec.get("dnsPolicy", ""), spec.get("dnsConfig"), f"{path}.dnsConfig"
    if policy == "None":
        if config is None:
            return [required(field_path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{field_path}.nameservers", text)]
    if not config:
        return []
    servers, searches = config.get("nameservers", ()), config.get("searches", ())
    errors: list[FieldError] = []
    if len(servers) > 3:
        errors.append(invalid(f"{field_path}.nameservers", list(servers), "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        errors += valid_ip(server, f"{field_path}.nameservers[{index}]")
    if len(searches) > 32:
        errors.append(invalid(f"{field_path}.searches", list(searches), "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        text = "must not have more than 2048 characters (including spaces) in the search list"
        errors.append(invalid(f"{field_path}.searches", list(searches), text))
    for index, search in enumerate(searches):
        name = search.removesuffix(".") if search != "." else "a"
        if not _SEARCH.fullmatch(name):
            text = (
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
                "and must start and end with an alphanumeric character"
            )
            errors.append(
                invalid(
                    f"{field_path}.searches[{index}]", name, formats.regex_text(text, _SEARCH.pattern, "example.com")
                )
            )
    for index, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            errors.append(required(f"{field_path}.options[{index}]", "must not be empty"))
    return errors
