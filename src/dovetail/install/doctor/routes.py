"""Subnets without a way out (D18): instances there need endpoints of the VPC for every service that they call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.controller import controllers
from dovetail.install.doctor.endpoints import api_server_faults, endpoint_policy_faults
from dovetail.install.doctor.facts import Facts, Fault, Json, environment, failure, shortened, warning
from dovetail.kube.resources import EC2NODECLASSES
from dovetail.language import message

#: What an instance calls until its node is ready: its network interfaces, credentials, images and their layers.
NODE_SERVICES = ("ec2", "ecr.api", "ecr.dkr", "s3", "sts")
#: What the controller calls besides; there is no endpoint for prices.
CONTROLLER_SERVICES = ("ssm", "eks")
EVERYWHERE = ("0.0.0.0/0", "::/0")


def check_ways_out(facts: Facts) -> Iterator[Fault]:
    judged: set[tuple[str, ...]] = set()
    tables: set[str] = set()
    for node_class in facts.items(EC2NODECLASSES.name):
        name = node_class["metadata"]["name"]
        subnets = _inside(facts, facts.items(f"subnets of {name}"))
        public = (node_class.get("spec") or {}).get("associatePublicIPAddress")
        routes = [(row, _default_route(facts, row, public)) for row in subnets]
        closed = [row for row, route in routes if route is None]
        tables |= {str(_table(facts, str(row["SubnetId"])).get("RouteTableId")) for row in subnets}
        key = (*sorted(str(row["SubnetId"]) for row in subnets), "closed", *(str(row["SubnetId"]) for row in closed))
        if key in judged:
            continue
        judged.add(key)
        if closed:
            yield from _endpoint_faults(facts, f"ec2nodeclass/{name}", closed)
        leading = [(row, route) for row, route in routes if route is not None]
        yield from api_server_faults(facts, f"ec2nodeclass/{name}", leading, closed)
    if tables:
        yield from endpoint_policy_faults(facts, tables)


def closed_subnets(facts: Facts, subnets: Sequence[Json], public: bool | None = None) -> list[Json]:
    """Those whose instances reach nothing outside of the VPC: no default route, or one that needs a public address."""
    return [row for row in _inside(facts, subnets) if _default_route(facts, row, public) is None]


def _inside(facts: Facts, subnets: Sequence[Json]) -> list[Json]:
    """Those of the cluster's VPC."""
    vpc = (eks_cluster(facts).get("resourcesVpcConfig") or {}).get("vpcId")
    return [row for row in subnets if row.get("VpcId") == vpc]


def _default_route(facts: Facts, subnet: Json, public: bool | None) -> Json | None:
    """The default route that works; `public` says whether instances have public addresses, if known."""
    for route in _table(facts, str(subnet["SubnetId"])).get("Routes") or ():
        destination = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock")
        if destination not in EVERYWHERE or route.get("State") == "blackhole":
            continue
        gateway = str(route.get("GatewayId") or "")
        if not gateway.startswith("igw-") or destination == "::/0":
            return route  # type: ignore[no-any-return]
        if subnet.get("MapPublicIpOnLaunch") if public is None else public:
            return route  # type: ignore[no-any-return]
    return None


def _table(facts: Facts, subnet: str) -> Json:
    """The subnet's own route table, else the main one of the VPC."""
    main: Json = {}
    for table in facts.items("route tables"):
        for row in table.get("Associations") or ():
            if row.get("SubnetId") == subnet:
                return table
            if row.get("Main"):
                main = table
    return main


def _endpoint_faults(facts: Facts, subject: str, closed: Sequence[Json]) -> Iterator[Fault]:
    served = {
        str(row.get("ServiceName")).split(f".{facts.region}.", 1)[-1]: row
        for row in facts.items("VPC endpoints")
        if str(row.get("State", "available")).lower() == "available"
    }
    missing = [service for service in NODE_SERVICES if service not in served]
    listed = shortened([str(row["SubnetId"]) for row in closed])
    vpc = closed[0].get("VpcId")
    if missing:
        yield failure(
            subject,
            message(
                "spec.subnetSelectorTerms selects {listed} without a way out of the VPC (no NAT gateway, "
                "or no public address), and the VPC has no endpoint for {missing}: instances there "
                "cannot join or pull images",
                listed=listed,
                missing=", ".join(missing),
            ),
            _attach_gateway(facts, closed)
            or _public_addresses(facts, subject, closed)
            or _create_endpoints(facts, str(vpc), missing, str(closed[0]["SubnetId"])),
        )
    running = controllers(facts)
    cluster = facts.items("cluster subnets")
    if not running or not cluster or len(closed_subnets(facts, cluster)) < len(cluster):
        return
    deployment = running[0]
    services = [*CONTROLLER_SERVICES, *(["sqs"] if environment(deployment).get("INTERRUPTION_QUEUE") else [])]
    lacking = [service for service in services if service not in served]
    where = f"deployment/{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
    if lacking:
        yield failure(
            where,
            message(
                "no subnet of the cluster leads out of the VPC {vpc}, and it has no endpoint for "
                "{lacking}, which the controller calls",
                vpc=vpc,
                lacking=", ".join(lacking),
            ),
            _create_endpoints(facts, str(vpc), lacking, str(closed[0]["SubnetId"])),
        )
    if environment(deployment).get("ISOLATED_VPC") != "true":
        yield warning(
            where,
            message(
                "ISOLATED_VPC is not true and no subnet of the cluster leads out of the VPC: there is no "
                "endpoint for prices, so every look at them fails"
            ),
            f"kubectl set env deployment/{deployment['metadata']['name']} -n {deployment['metadata']['namespace']}"
            " ISOLATED_VPC=true",
        )


def _attach_gateway(facts: Facts, closed: Sequence[Json]) -> str:
    """The command that attaches the internet gateway again to which routes of these subnets lead; empty elsewhere."""
    for subnet in closed:
        for route in _table(facts, str(subnet["SubnetId"])).get("Routes") or ():
            gateway = str(route.get("GatewayId") or "")
            if route.get("State") == "blackhole" and gateway.startswith("igw-"):
                return (
                    f"aws ec2 attach-internet-gateway --internet-gateway-id {gateway} --vpc-id {subnet.get('VpcId')}"
                    f" --region {facts.region}"
                )
    return ""


def _public_addresses(facts: Facts, subject: str, closed: Sequence[Json]) -> str:
    """The command that gives instances public addresses, where nothing else is missing; empty elsewhere."""
    if any(_default_route(facts, row, public=True) is None for row in closed):
        return ""
    return (
        f'kubectl patch {subject.replace("/", " ")} --type=merge -p \'{{"spec":{{"associatePublicIPAddress":true}}}}\''
    )


def _create_endpoints(facts: Facts, vpc: str, services: Sequence[str], subnet: str) -> str:
    """The commands for all of them; that of S3 is a gateway in the route table, and costs nothing."""
    commands = []
    for service in services:
        kind = f"Interface --subnet-ids {subnet}"
        if service == "s3":
            table = str(_table(facts, subnet).get("RouteTableId") or "")
            kind = "Gateway" + (f" --route-table-ids {table}" if table else "")
        commands.append(
            f"aws ec2 create-vpc-endpoint --vpc-id {vpc} --service-name com.amazonaws.{facts.region}.{service}"
            f" --vpc-endpoint-type {kind} --region {facts.region}"
        )
    return " && ".join(commands)
