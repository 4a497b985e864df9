"""Registration diagnosis: instances that run and do not register, end before they could, or have no network, and why.

An instance that ended leaves a NodeClaim that would wait in vain for a quarter of an hour. It is deleted as soon as
the cloud reports it, and its NodePool pauses for a while, because the next instance would end the same way.
"""

from __future__ import annotations

from datetime import timedelta

from dovetail.cloud.aws.awsauth import refusal
from dovetail.cloud.provider import CloudError, InstanceNotFound
from dovetail.cluster.indexes import JOINING, NOT_CONSOLIDATABLE, STAGE
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.history.provisioning import never_joined
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.nodeclaim.launch import NODEPOOL_PAUSE_S, waiting_for
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.kube.resources import CONFIGMAPS
from dovetail.language import source
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import condition

PERIOD_S = 30.0
#: What lets an instance look itself up, without which it does not join.
JOIN_POLICY = "AmazonEKSWorkerNodePolicy"
#: What lets aws-node give pods addresses, and what lets its images be pulled.
NETWORK_POLICY, PULL_POLICY = "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"
#: How a kubelet says that there is no network plugin.
NO_NETWORK = "cni plugin not initialized"
#: Diagnoses that are recorded once and remembered.
MAX_REMEMBERED = 1000
#: After this long without a node the instance is looked up, and after that long the cause is searched for.
LOOKUP_AFTER, DIAGNOSE_AFTER = timedelta(seconds=20), timedelta(seconds=90)
#: After this long without a known cause, what to check is named: an instance has booted by then.
UNEXPLAINED_AFTER = timedelta(seconds=120)


class RegistrationDiagnosis:
    """The controller `nodeclaim.joining`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = reconcile_ids(context.chance, "nodeclaim.joining")
        self._diagnosed: dict[str, str] = {}

    async def run(self) -> None:
        await every(PERIOD_S, self.check, "nodeclaim.joining", self._context.log, self._ids)

    async def check(self) -> None:
        now = self._context.clock.now()
        for claim in self._context.cluster_state.claims.store.by(STAGE, JOINING):
            launched = claim.condition("Launched")
            if launched is None or launched.status != "True" or launched.last_transition_time is None:
                continue
            waited = now - launched.last_transition_time
            try:
                if waited >= LOOKUP_AFTER and not await self._is_ended(claim) and waited >= DIAGNOSE_AFTER:
                    await self._diagnose(claim, waited)
            except (CloudError, KubeError) as problem:  # one NodeClaim's failure keeps no other from its check
                self._context.log.error(
                    "Reconciler error",
                    controller="nodeclaim.joining",
                    NodeClaim=logs.ref(claim.name),
                    error=str(problem),
                )
        for claim in self._context.cluster_state.claims.store.by(STAGE, NOT_CONSOLIDATABLE):
            registered = claim.condition("Registered")
            since = registered.last_transition_time if registered is not None and registered.status == "True" else None
            initialized = claim.condition("Initialized")
            is_initialized = initialized is not None and initialized.status == "True"
            if since is not None and not is_initialized and now - since >= DIAGNOSE_AFTER:
                self._report_network(claim)

    def _report_network(self, claim: NodeClaim) -> None:
        """An event for a node that is not ready because its network plugin has not started."""
        context = self._context
        node = context.cluster_state.node_for(claim)
        ready = condition(node.status.conditions, "Ready") if node is not None else None
        if node is None or ready is None or ready.status == "True" or NO_NETWORK not in ready.message:
            return
        name = node.metadata.name
        why = source(
            "Node {name} is not ready, its network plugin has not started: see kubectl get pods -n kube-system"
            " -l k8s-app=aws-node --field-selector spec.nodeName={name}, and check that its role has the policies"
            " {network_policy} and {pull_policy}"
        ).format(name=name, network_policy=NETWORK_POLICY, pull_policy=PULL_POLICY)
        for pod in waiting_for(context, claim):
            context.event_publisher.publish(pod, "Warning", "NodeNetworkNotReady", why)
        if context.event_publisher.publish_on_node_and_claim(node, claim, "Warning", "NodeNetworkNotReady", why):
            context.log.error(
                "node has no network", controller="nodeclaim.joining", NodeClaim=logs.ref(claim.name), error=why
            )

    async def _is_ended(self, claim: NodeClaim) -> bool:
        """Whether the instance is known to have ended; then its NodeClaim is deleted. Not found is not ended."""
        try:
            await self._context.cloud.get(claim.status.provider_id)
        except InstanceNotFound as absent:
            if absent.why:
                ended = source("the instance ended before it joined: {why}").format(why=absent.why)
                await self._delete(claim, f"{ended} (NEVER_JOINED)")
            return bool(absent.why)
        return False

    async def _delete(self, claim: NodeClaim, why: str) -> None:
        context = self._context
        context.event_publisher.launch_failed(claim, "InstanceTerminated", why)
        for pod in waiting_for(context, claim):
            context.event_publisher.launch_failed_for(pod, claim, "InstanceTerminated", why)
        context.safety.launch(False, why)
        if claim.node_pool:
            context.instance_types.pause(claim.node_pool, NODEPOOL_PAUSE_S, why)
        context.log.error(
            "instance ended before it joined", controller="nodeclaim.joining", NodeClaim=logs.ref(claim.name), error=why
        )
        await delete(context, claim, "instance_terminated")

    async def _diagnose(self, claim: NodeClaim, waited: timedelta) -> None:
        context = self._context
        why = await self._cause(claim, waited)
        if why is None:
            return
        message = source("Instance runs and has not joined the cluster: {why} (NEVER_JOINED)").format(why=why)
        waiting = list(waiting_for(context, claim))
        if self._diagnosed.get(claim.metadata.uid) != why:
            if len(self._diagnosed) >= MAX_REMEMBERED:
                self._diagnosed.clear()
            self._diagnosed[claim.metadata.uid] = why
            text = source("instance runs and has not joined the cluster: {why}").format(why=why)
            keys = [pod.metadata.key for pod in waiting]
            context.decision_history.record(
                never_joined(context.decision_history, context.cluster_state, claim, keys, text)
            )
        for pod in waiting:
            context.event_publisher.publish(pod, "Warning", "NodeNotJoined", f"NodeClaim {claim.name}: {message}")
        if context.event_publisher.publish(claim, "Warning", "NodeNotJoined", message):
            context.log.error(
                "instance has not joined", controller="nodeclaim.joining", NodeClaim=logs.ref(claim.name), error=why
            )

    async def _cause(self, claim: NodeClaim, waited: timedelta) -> str | None:
        """Why the instance does not join, or what to check; None while there is nothing to say."""
        context = self._context
        node_class = context.cluster_state.node_classes.store.get(claim.spec.node_class_ref.name)
        profile = ((node_class or {}).get("status") or {}).get("instanceProfile")
        if node_class is None or not profile:
            return None
        role = await context.cloud.node_role(node_class)
        if role is None:
            return unknown_role(profile) if waited >= UNEXPLAINED_AFTER else None
        try:
            config_map = await context.kube.get(CONFIGMAPS, "aws-auth", "kube-system")
        except NotFound:
            config_map = {}
        except Forbidden:
            config_map = None
        data = config_map.get("data") if config_map is not None else None
        why = refusal(role.arn, data, role.admitted, aws_auth_read=config_map is not None)
        if why is None and waited >= UNEXPLAINED_AFTER:
            return mapped_role(role.arn, claim.status.provider_id.rpartition("/")[2])
        return why


def unknown_role(profile: str) -> str:
    """What to check where the controller may not ask which role an instance profile has."""
    return source(
        "the controller may not ask IAM for the role of instance profile {profile} (iam:GetInstanceProfile): check"
        " that the profile has a role, that the ConfigMap aws-auth in kube-system maps this role with the groups"
        " system:bootstrappers and system:nodes or that it has an access entry of type EC2_LINUX, and that it has the"
        " policy {policy}"
    ).format(profile=profile, policy=JOIN_POLICY)


def mapped_role(role_arn: str, instance_id: str) -> str:
    """What to check where the role is let in."""
    return source(
        "{role_arn} is let in: check that it has the policy {policy}, that its subnet and security groups reach"
        " the API server, and its console output: aws ec2 get-console-output --latest --instance-id {instance_id}"
    ).format(role_arn=role_arn, policy=JOIN_POLICY, instance_id=instance_id)
