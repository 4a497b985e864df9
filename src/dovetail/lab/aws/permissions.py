"""What a request to AWS needs: the actions, on which resources, with which condition keys.

A launch is several: the fleet and its launch template, the instances with their volumes and tags, and the role that is
passed to them. A resource that is not worked out here is None, and is judged by the action alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from dovetail.lab.aws.account_state import AccountState
from dovetail.lab.aws.http_forms import Environ, body_of

ACCOUNT = "123456789012"
_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([a-z0-9-]+)/aws4_request")
#: Kinds of EC2 resources, by the prefix of their ids.
_KINDS = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "lt": "launch-template",
    "subnet": "subnet",
    "sg": "security-group",
    "vpc": "vpc",
    "fleet": "fleet",
    "sir": "spot-instances-request",
    "ami": "image",
    "snap": "snapshot",
    "cr": "capacity-reservation",
}
#: Kinds that a launch makes; each is tagged by the request or by its launch template.
_LAUNCHED = ("instance", "volume", "network-interface")
#: Services whose name in IAM is not that of the signature.
_PREFIXES = {"monitoring": "cloudwatch"}
#: Operations by another name in IAM.
_ACTIONS = {"DeleteMessageBatch": "DeleteMessage", "SendMessageBatch": "SendMessage"}


class Permission(msgspec.Struct, frozen=True):
    """One thing that has to be allowed. `later`: EC2 finds out only while it launches."""

    action: str
    resource: str | None
    context: Mapping[str, str | list[str]] = {}
    later: bool = False


class AwsRequest(msgspec.Struct, frozen=True):
    """A request, read: `parameters` by their names in the API, lists as lists."""

    service: str
    action: str
    region: str
    parameters: Mapping[str, Any]


def read(environ: Environ) -> AwsRequest:
    """The operation and its parameters, from the protocol that the service speaks."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    region, service = (scope[1], scope[2]) if scope else ("", "")
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return AwsRequest(service, target.rpartition(".")[2], region, _json(environ))
    method, path = str(environ.get("REQUEST_METHOD")), str(environ.get("PATH_INFO", "/"))
    if path in ("", "/"):
        form = environ.get("QUERY_STRING", "") + "&" + body_of(environ).decode(errors="replace")
        parameters = nested({name: values[0] for name, values in parse_qs(form).items()})
        return AwsRequest(service, str(parameters.get("Action", "")), region, parameters)
    for route_method, pattern, operation in _routes(service):
        if route_method == method and (match := pattern.fullmatch(path)):
            names = {name: unquote(value) for name, value in match.groupdict().items()}
            return AwsRequest(service, operation, region, {**_json(environ), **names})
    return AwsRequest(service, f"{method} {path}", region, {})


def _json(environ: Environ) -> dict[str, Any]:
    try:
        body = json.loads(body_of(environ) or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def nested(form: Mapping[str, str]) -> dict[str, Any]:
    """`A.1.B=x` becomes {"A": [{"B": "x"}]}."""
    root: dict[str, Any] = {}
    for name, value in form.items():
        level = root
        *heads, last = name.split(".")
        for head in heads:
            inner = level.setdefault(head, {})
            if not isinstance(inner, dict):
                break
            level = inner
        else:
            level[last] = value
    return {name: _listed(value) for name, value in root.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    if set(value) == {"member"}:
        return _listed(value["member"])
    return {key: _listed(inner) for key, inner in value.items()}


@cache
def _routes(service: str) -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """Method, path and operation of a REST service."""
    import botocore.session
    from botocore.exceptions import UnknownServiceError

    try:
        model = botocore.session.get_session().get_service_model(service)
    except UnknownServiceError:
        return ()
    routes = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        path = http["requestUri"].partition("?")[0]
        pattern = re.sub(r"\\\{(\w+)(\\\+)?\\\}", r"(?P<\1>.+?)", re.escape(path))
        routes.append((http["method"], re.compile(pattern), name))
    # the longest path first: `/clusters/{name}` would take what lies below it
    return tuple(sorted(routes, key=lambda route: -route[1].pattern.count("/")))


class Permissions:
    """Works out what requests need; reads tags from the account."""

    def __init__(self, endpoint: AccountState) -> None:
        self._endpoint = endpoint
        self._by_action: Mapping[tuple[str, str], Callable[[AwsRequest], Iterator[Permission]]] = {
            ("ec2", "CreateFleet"): self._fleet,
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "CreateLaunchTemplate"): self._create_launch_template,
            ("ec2", "DeleteLaunchTemplate"): self._launch_template,
            ("ec2", "CreateLaunchTemplateVersion"): self._launch_template,
            ("ec2", "CreateTags"): self._tag,
            ("ec2", "DeleteTags"): self._tag,
            ("iam", "AddRoleToInstanceProfile"): self._add_role,
        }
        self._by_service: Mapping[str, Callable[[AwsRequest], Iterator[Permission]]] = {
            "ec2": self._ec2,
            "iam": self._iam,
            "eks": self._eks,
            "sqs": self._sqs,
            "ssm": self._ssm,
            "sts": self._sts,
            "autoscaling": self._auto_scaling,
        }

    def of(self, request: AwsRequest) -> list[Permission]:
        """In the order in which AWS checks them. The caller's own identity needs none."""
        if (request.service, request.action) == ("sts", "GetCallerIdentity"):
            return []
        work_out = self._by_action.get((request.service, request.action)) or self._by_service.get(request.service)
        permissions = work_out(request) if work_out is not None else iter((Permission(action_of(request), None),))
        region = {"aws:RequestedRegion": request.region}
        return [
            msgspec.structs.replace(permission, context={**region, **permission.context}) for permission in permissions
        ]

    # -- EC2

    def _arn(self, request: AwsRequest, kind: str, name: str = "*") -> str:
        owner = "" if kind in ("image", "snapshot") else ACCOUNT
        return f"arn:aws:ec2:{request.region}:{owner}:{kind}/{name}"

    def _fleet(self, request: AwsRequest) -> Iterator[Permission]:
        tags = _tag_specifications(request.parameters)
        yield Permission("ec2:CreateFleet", self._arn(request, "fleet"), _request_tags(tags.get("fleet", {})))
        templates = [
            self._template(config.get("LaunchTemplateSpecification", {}))
            for config in request.parameters.get("LaunchTemplateConfigs", ())
        ]
        existing = [template for template in templates if template is not None]
        for template in existing:
            context = _resource_tags(_tags_of(template))
            yield Permission("ec2:CreateFleet", self._arn(request, "launch-template", template.id), context)
        if "fleet" in tags:
            context = _request_tags(tags["fleet"]) | {"ec2:CreateAction": "CreateFleet"}
            yield Permission("ec2:CreateTags", self._arn(request, "fleet"), context)
        for template in existing:
            data = template.versions[-1].data
            launched = _merged(tags, _tag_specifications({"TagSpecification": data.get("TagSpecifications") or []}))
            yield from self._launch(request, launched, data, "CreateFleet", later=True)

    def _run_instances(self, request: AwsRequest) -> Iterator[Permission]:
        tags = _tag_specifications(request.parameters)
        template = self._template(request.parameters.get("LaunchTemplate") or {})
        data = dict(template.versions[-1].data) if template is not None else {}
        if template is not None:
            context = _resource_tags(_tags_of(template))
            yield Permission("ec2:RunInstances", self._arn(request, "launch-template", template.id), context)
        profile = request.parameters.get("IamInstanceProfile")
        data |= {"IamInstanceProfile": profile} if profile else {}
        yield from self._launch(request, tags, data, "RunInstances", later=False)

    def _launch(
        self, request: AwsRequest, tags: Mapping[str, Mapping[str, str]], data: Mapping[str, Any], how: str, later: bool
    ) -> Iterator[Permission]:
        """The instances of a launch, with what is made for them and with their role."""
        for kind in _LAUNCHED:
            context = _request_tags(tags.get(kind, {}))
            yield Permission("ec2:RunInstances", self._arn(request, kind), context, later)
        for kind in ("image", "subnet", "security-group"):
            yield Permission("ec2:RunInstances", self._arn(request, kind, "x"), {}, later)
        for kind, kept in tags.items():
            if kind in _LAUNCHED and kept:
                context = _request_tags(kept) | {"ec2:CreateAction": how}
                yield Permission("ec2:CreateTags", self._arn(request, kind), context, later)
        role = self._role_of_profile(data.get("IamInstanceProfile") or {})
        if role:
            yield Permission("iam:PassRole", role, {"iam:PassedToService": "ec2.amazonaws.com"}, later)

    def _create_launch_template(self, request: AwsRequest) -> Iterator[Permission]:
        tags = _tag_specifications(request.parameters).get("launch-template", {})
        arn = self._arn(request, "launch-template")
        yield Permission("ec2:CreateLaunchTemplate", arn, _request_tags(tags))
        if tags:
            context = _request_tags(tags) | {"ec2:CreateAction": "CreateLaunchTemplate"}
            yield Permission("ec2:CreateTags", arn, context)

    def _launch_template(self, request: AwsRequest) -> Iterator[Permission]:
        template = self._template(request.parameters)
        tags = _tags_of(template) if template is not None else {}
        name = template.id if template is not None else "*"
        yield Permission(action_of(request), self._arn(request, "launch-template", name), _resource_tags(tags))

    def _tag(self, request: AwsRequest) -> Iterator[Permission]:
        tags = {tag.get("Key", ""): tag.get("Value", "") for tag in request.parameters.get("Tag", ())}
        for name in request.parameters.get("ResourceId", ()):
            context = _request_tags(tags) | _resource_tags(self._ec2_tags(name))
            yield Permission(action_of(request), self._arn(request, _kind(name), name), context)

    def _ec2(self, request: AwsRequest) -> Iterator[Permission]:
        names = request.parameters.get("InstanceId")
        if request.action.startswith(("Describe", "Get")):
            yield Permission(action_of(request), "*")
        elif isinstance(names, list | str):
            for name in [names] if isinstance(names, str) else names:
                context = _resource_tags(self._ec2_tags(name))
                yield Permission(action_of(request), self._arn(request, "instance", name), context)
        else:
            yield Permission(action_of(request), None)

    def _ec2_tags(self, name: str) -> dict[str, str]:
        return {
            tag["key"]: tag["value"] for tag in self._endpoint.backend("ec2").describe_tags({"resource-id": [name]})
        }

    def _template(self, specification: Mapping[str, Any]) -> Any:
        templates = list(self._endpoint.backend("ec2").launch_templates.values())
        name, identifier = specification.get("LaunchTemplateName"), specification.get("LaunchTemplateId")
        return next((item for item in templates if item.name == name or item.id == identifier), None)

    # -- IAM

    def _role_of_profile(self, named: Mapping[str, Any]) -> str:
        name = named.get("Name") or str(named.get("Arn", "")).rpartition("/")[2]
        profile = self._profile(str(name))
        return str(profile.roles[0].arn) if profile is not None and profile.roles else ""

    def _profile(self, name: str) -> Any:
        profiles = list(self._endpoint.backend("iam", "aws").instance_profiles.values())
        return next((profile for profile in profiles if profile.name == name), None)

    def _iam(self, request: AwsRequest) -> Iterator[Permission]:
        parameters, prefix = request.parameters, f"arn:aws:iam::{ACCOUNT}:"
        tags = {tag.get("Key", ""): tag.get("Value", "") for tag in _rows(parameters.get("Tags"))}
        context = _request_tags(tags)
        resource: str | None = None
        if name := parameters.get("InstanceProfileName"):
            profile = self._profile(str(name))
            path = profile.path if profile is not None else str(parameters.get("Path") or "/")
            resource = f"{prefix}instance-profile{path}{name}"
            context |= _resource_tags({tag["Key"]: tag["Value"] for tag in profile.tags} if profile is not None else {})
        elif name := parameters.get("RoleName"):
            resource = f"{prefix}role/{name}"
        elif request.action.startswith("List"):
            resource = "*"
        yield Permission(action_of(request), resource, context)
        if request.action == "CreateInstanceProfile" and tags:
            made = _resource_tags(tags)  # what is tagged in the same breath has the tags already
            yield Permission("iam:TagInstanceProfile", resource, context | made)

    def _add_role(self, request: AwsRequest) -> Iterator[Permission]:
        yield from self._iam(request)
        role = f"arn:aws:iam::{ACCOUNT}:role/{request.parameters.get('RoleName')}"
        yield Permission("iam:PassRole", role, {"iam:PassedToService": "ec2.amazonaws.com"})

    # -- other services

    def _eks(self, request: AwsRequest) -> Iterator[Permission]:
        parameters, prefix = request.parameters, f"arn:aws:eks:{request.region}:{ACCOUNT}:"
        cluster = parameters.get("name") or parameters.get("clusterName")
        if not cluster:
            yield Permission(action_of(request), "*")
        elif group := parameters.get("nodegroupName"):
            yield Permission(action_of(request), f"{prefix}nodegroup/{cluster}/{group}/x")
        elif (principal := parameters.get("principalArn")) and request.action != "CreateAccessEntry":
            role = str(principal).rpartition("/")[2]
            yield Permission(action_of(request), f"{prefix}access-entry/{cluster}/role/{ACCOUNT}/{role}/x")
        else:
            yield Permission(action_of(request), f"{prefix}cluster/{cluster}")

    def _sqs(self, request: AwsRequest) -> Iterator[Permission]:
        parameters = request.parameters
        name = parameters.get("QueueName") or str(parameters.get("QueueUrl", "")).rpartition("/")[2]
        yield Permission(action_of(request), f"arn:aws:sqs:{request.region}:{ACCOUNT}:{name}" if name else None)

    def _ssm(self, request: AwsRequest) -> Iterator[Permission]:
        parameters = request.parameters
        names = parameters.get("Names") or [parameters.get("Name") or parameters.get("Path")]
        for name in filter(None, names):
            owner = "" if str(name).startswith("/aws/") else ACCOUNT
            path = name if str(name).startswith("/") else f"/{name}"
            yield Permission(action_of(request), f"arn:aws:ssm:{request.region}:{owner}:parameter{path}")

    def _sts(self, request: AwsRequest) -> Iterator[Permission]:
        yield Permission(action_of(request), request.parameters.get("RoleArn"))

    def _auto_scaling(self, request: AwsRequest) -> Iterator[Permission]:
        name = request.parameters.get("AutoScalingGroupName")
        groups = self._endpoint.backend("autoscaling").autoscaling_groups
        if instance := request.parameters.get("InstanceId"):
            members = (
                (group, [str(state.instance.id) for state in group.instance_states]) for group in groups.values()
            )
            name = next((group.name for group, ids in members if instance in ids), name)
        if not isinstance(name, str):
            yield Permission(action_of(request), "*")
            return
        tags = {tag["Key"]: tag["Value"] for tag in (groups[name].tags if name in groups else ())}
        arn = f"arn:aws:autoscaling:{request.region}:{ACCOUNT}:autoScalingGroup:x:autoScalingGroupName/{name}"
        yield Permission(action_of(request), arn, _resource_tags(tags) | _autoscaling_tags(tags))


def action_of(request: AwsRequest) -> str:
    """As policies name it."""
    return f"{_PREFIXES.get(request.service, request.service)}:{_ACTIONS.get(request.action, request.action)}"


def _kind(name: str) -> str:
    return _KINDS.get(name.partition("-")[0], "*")


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _tag_specifications(parameters: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Tags of a request by the kind of resource that gets them."""
    kinds: dict[str, dict[str, str]] = {}
    for row in _rows(parameters.get("TagSpecification") or parameters.get("TagSpecifications")):
        tags = _rows(row.get("Tag") or row.get("Tags"))
        kinds.setdefault(str(row.get("ResourceType")), {}).update(
            {str(tag["Key"]): str(tag.get("Value", "")) for tag in tags if "Key" in tag}
        )
    return kinds


def _merged(*specifications: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    kinds = {kind for specification in specifications for kind in specification}
    return {kind: {k: v for spec in specifications for k, v in spec.get(kind, {}).items()} for kind in sorted(kinds)}


def _request_tags(tags: Mapping[str, str]) -> dict[str, str | list[str]]:
    context: dict[str, str | list[str]] = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    return {**context, "aws:TagKeys": list(tags)} if tags else context


def _resource_tags(tags: Mapping[str, str]) -> dict[str, str | list[str]]:
    """Under both of their names."""
    return {f"{prefix}:ResourceTag/{key}": value for key, value in tags.items() for prefix in ("aws", "ec2")}


def _autoscaling_tags(tags: Mapping[str, str]) -> dict[str, str | list[str]]:
    return {f"autoscaling:ResourceTag/{key}": value for key, value in tags.items()}


def _tags_of(resource: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in resource.get_tags()}
