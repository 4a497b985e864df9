"""What stands between a workload and its pods: admission webhooks, metrics, and autoscalers of one workload."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from difflib import get_close_matches

from cryptography import x509

from dovetail.install.doctor.collect import APISERVICES, METRICS, MUTATING, VALIDATING, VPAS
from dovetail.install.doctor.controller import has_endpoints
from dovetail.install.doctor.facts import Facts, Fault, Json, State, condition, failure, name_of, warning
from dovetail.kube.resources import DEPLOYMENTS, ENDPOINTSLICES, HPAS, SERVICES
from dovetail.language import message
from dovetail.model.pod_autoscalers import conflicting_resources, workload

#: Programs that apply a repository again and again.
GITOPS_MANAGERS = ("argocd", "flux", "helm-controller", "kustomize-controller")
EXPIRY_WARNING = timedelta(days=14)
#: The port of a webhook that states none.
HTTPS = 443
#: Groups of objects that a node autoscaler, a pod autoscaler or a workload's controller writes; others only warn.
WATCHED_GROUPS = frozenset(
    (
        *("", "*", "apps", "autoscaling", "autoscaling.k8s.io", "batch", "coordination.k8s.io", "policy"),
        *("karpenter.sh", "karpenter.k8s.aws"),
    )
)


# D19: webhooks


def check_webhooks(facts: Facts) -> Iterator[Fault]:
    for kind, source in (
        ("mutatingwebhookconfiguration", MUTATING),
        ("validatingwebhookconfiguration", VALIDATING),
    ):
        for configuration in facts.items(source.name):
            for webhook in configuration.get("webhooks") or ():
                yield from _webhook_faults(facts, kind, configuration["metadata"]["name"], webhook)


def _webhook_faults(facts: Facts, kind: str, name: str, webhook: Json) -> Iterator[Fault]:
    subject, client = f"{kind}/{name}", webhook.get("clientConfig") or {}
    blocks = webhook.get("failurePolicy", "Fail") == "Fail"
    effect = (
        message("and failurePolicy is Fail, so the API server refuses every object it covers")
        if blocks
        else message("so it is skipped")
    )
    groups = {group for rule in webhook.get("rules") or () for group in rule.get("apiGroups") or ()}
    make = failure if blocks and groups & WATCHED_GROUPS else warning
    service = client.get("service")
    if service:
        namespace, short = service["namespace"], service["name"]
        item = facts.named(SERVICES.name, short, namespace)
        if item is None:
            yield make(
                subject,
                message(
                    "webhook {name} calls the Service {namespace}/{short}, which does not exist, {effect}",
                    name=webhook["name"],
                    namespace=namespace,
                    short=short,
                    effect=effect,
                ),
                f"kubectl delete {kind} {name}",
            )
            return
        port = int(service.get("port") or HTTPS)
        ports = [int(row["port"]) for row in (item.get("spec") or {}).get("ports") or ()]
        if ports and port not in ports:
            yield make(
                subject,
                message(
                    "webhook {name} calls port {port} of the Service {namespace}/{short}, which has {ports} alone, "
                    "{effect}",
                    name=webhook["name"],
                    port=port,
                    namespace=namespace,
                    short=short,
                    ports=", ".join(map(str, ports)),
                    effect=effect,
                ),
                _port_remedy(kind, name, webhook, ports),
            )
            return
        served = facts.answers[ENDPOINTSLICES.name].state is not State.ABSENT
        if served and not has_endpoints(facts, namespace, short):
            yield make(
                subject,
                message(
                    "webhook {name} calls the Service {namespace}/{short}, which has no ready endpoint, {effect}",
                    name=webhook["name"],
                    namespace=namespace,
                    short=short,
                    effect=effect,
                ),
                f"kubectl describe endpointslices -n {namespace} -l kubernetes.io/service-name={short}",
            )
    yield from _expiry_faults(facts, subject, webhook, client.get("caBundle") or "")


def _port_remedy(kind: str, name: str, webhook: Json, ports: Sequence[int]) -> str:
    """The only port of the Service; among several the operator chooses."""
    if len(ports) > 1:
        return f"kubectl edit {kind} {name}"
    patch = {"webhooks": [{"name": webhook["name"], "clientConfig": {"service": {"port": ports[0]}}}]}
    return f"kubectl patch {kind} {name} --type=strategic -p '{json.dumps(patch, separators=(',', ':'))}'"


def _expiry_faults(facts: Facts, subject: str, webhook: Json, bundle: str) -> Iterator[Fault]:
    """Only where every certificate of the bundle is about to expire: a bundle may hold an old one beside a new one."""
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle)) if bundle else []
    except ValueError:
        yield failure(
            subject,
            message(
                "clientConfig.caBundle of webhook {name} is no PEM certificate, so every call to it fails",
                name=webhook["name"],
            ),
            f"kubectl edit {subject.replace('/', ' ')}",
        )
        return
    if not certificates:
        return
    left = max(certificate.not_valid_after_utc for certificate in certificates) - facts.time
    if left < EXPIRY_WARNING:
        make = failure if left <= timedelta(0) else warning
        state = message("has expired") if left <= timedelta(0) else message("expires in {days} days", days=left.days)
        yield make(
            subject,
            message(
                "clientConfig.caBundle of webhook {name} {state}: calls to it fail from then on",
                name=webhook["name"],
                state=state,
            ),
            f"kubectl get {subject.replace('/', ' ')} -o yaml",
        )


# D20: metrics and autoscalers of one workload


def check_metrics(facts: Facts) -> Iterator[Fault]:
    autoscalers = [hpa for hpa in facts.items(HPAS.name) if _resource_metrics(hpa)]
    vertical = [vpa for vpa in facts.items(VPAS.name) if _update_mode(vpa) != "Off"]
    answer = facts.answers.get(METRICS)
    silent = answer is not None and answer.state in (State.ABSENT, State.UNREACHABLE)
    silent = silent or bool(_metrics_fault(facts, ""))
    needing = [("hpa", hpa) for hpa in autoscalers] + [("vpa", vpa) for vpa in vertical]
    if needing and silent and answer is not None:
        kind, obj = needing[0]
        more = message(" and {count} more", count=len(needing) - 1) if len(needing) > 1 else ""
        cause = _metrics_fault(facts, answer.message)
        yield failure(
            "apiservice/v1beta1.metrics.k8s.io",
            message(
                "{kind} {name_of}{more} needs resource metrics, and metrics.k8s.io/v1beta1 {cause}",
                kind=kind,
                name_of=name_of(obj),
                more=more,
                cause=cause,
            ),
            _metrics_remedy(facts),
        )
    elif needing:
        facts.read(METRICS)
    for hpa in autoscalers:
        if not silent:
            yield from _scaling_faults(hpa)
        yield from _target_faults(facts, hpa)
        yield from _replicas_faults(facts, hpa)
        for vpa in vertical:
            shared = conflicting_resources(hpa, vpa)
            if shared:
                yield warning(
                    f"hpa/{name_of(hpa)}",
                    message(
                        "it scales {workload} by {shared}, and VPA {name_of} changes the same requests: they "
                        "move against each other",
                        workload=workload(hpa, "scaleTargetRef")[1],
                        shared=", ".join(shared),
                        name_of=name_of(vpa),
                    ),
                    f"kubectl patch vpa {vpa['metadata']['name']} -n {vpa['metadata']['namespace']} --type=merge -p"
                    ' \'{"spec":{"updatePolicy":{"updateMode":"Off"}}}\'',
                )


def _metrics_fault(facts: Facts, answered: str) -> str:
    """Why metrics are not served, by the APIService and its Service; `answered` where they do not say."""
    answer = facts.answers.get(METRICS)
    if answer is not None and answer.state is State.ABSENT:
        return message("is not served: metrics-server is not installed")
    registered = facts.answers.get(APISERVICES.name)
    if registered is None or registered.state is not State.READ or not registered.data:
        return answered
    row = facts.named(APISERVICES.name, "v1beta1.metrics.k8s.io")
    if row is None:
        return message("is not registered: metrics-server is not installed")
    service = (row.get("spec") or {}).get("service")
    if service and facts.named(SERVICES.name, service["name"], service["namespace"]) is None:
        return message(
            "is served by the Service {namespace}/{name}, which does not exist",
            namespace=service["namespace"],
            name=service["name"],
        )
    if service and not has_endpoints(facts, service["namespace"], service["name"]):
        return message(
            "is served by the Service {namespace}/{name}, which has no ready endpoint",
            namespace=service["namespace"],
            name=service["name"],
        )
    available = condition(row, "Available") or {}
    if available.get("status") == "False":
        return message(
            "is not available ({reason}): {message}",
            reason=available.get("reason", ""),
            message=available.get("message", ""),
        )
    return answered


def _metrics_remedy(facts: Facts) -> str:
    """Start what the APIService names where it is there; install it where it is not."""
    install = (
        "kubectl apply -f https://github.com/kubernetes-sigs/metrics-server/releases/latest/download/components.yaml"
    )
    registered = facts.answers.get(APISERVICES.name)
    if registered is None or not registered.data:
        return install
    row = facts.named(APISERVICES.name, "v1beta1.metrics.k8s.io")
    named = ((row or {}).get("spec") or {}).get("service")
    service = facts.named(SERVICES.name, named["name"], named["namespace"]) if named else None
    selector = ((service or {}).get("spec") or {}).get("selector") or {}
    for deployment in facts.items(DEPLOYMENTS.name):
        labels = (deployment["spec"]["template"].get("metadata") or {}).get("labels") or {}
        metadata = deployment["metadata"]
        if named and selector and metadata["namespace"] == named["namespace"] and selector.items() <= labels.items():
            if deployment["spec"].get("replicas", 1) == 0:
                return f"kubectl scale deployment {metadata['name']} -n {metadata['namespace']} --replicas=1"
            return f"kubectl describe deployment {metadata['name']} -n {metadata['namespace']}"
    return install


def _scaling_faults(hpa: Json) -> Iterator[Fault]:
    """What the HPA itself says, where metrics are served and it cannot use them."""
    row = condition(hpa, "ScalingActive") or {}
    text = str(row.get("message") or "")
    if row.get("status") == "False" and "missing request for" in text:
        target = workload(hpa, "scaleTargetRef")
        yield failure(
            f"hpa/{name_of(hpa)}",
            message(
                "condition ScalingActive is False ({reason}): {message}; a percentage is one of requests",
                reason=row.get("reason", ""),
                message=text,
            ),
            f"kubectl set resources {target[0].lower()} {target[1]} -n {target[2]} --requests=cpu=100m,memory=128Mi",
        )


def _target_faults(facts: Facts, hpa: Json) -> Iterator[Fault]:
    """A workload that the HPA cannot read or scale: it does not exist, or its kind has no scale."""
    row = condition(hpa, "AbleToScale") or {}
    if row.get("status") != "False" or row.get("reason") != "FailedGetScale":
        return
    kind, name, namespace = workload(hpa, "scaleTargetRef")
    names = [
        item["metadata"]["name"]
        for item in facts.items(DEPLOYMENTS.name)
        if kind == "Deployment" and item["metadata"]["namespace"] == namespace
    ]
    meant = get_close_matches(name, names, 1)
    patch = f'{{"spec":{{"scaleTargetRef":{{"name":"{meant[0]}"}}}}}}' if meant else ""
    yield failure(
        f"hpa/{name_of(hpa)}",
        message("spec.scaleTargetRef {kind}/{name}: {message}", kind=kind, name=name, message=row.get("message", "")),
        f"kubectl patch hpa {hpa['metadata']['name']} -n {namespace} --type=merge -p '{patch}'"
        if meant
        else f"kubectl get deployments,statefulsets -n {namespace}",
    )


def _replicas_faults(facts: Facts, hpa: Json) -> Iterator[Fault]:
    kind, name, namespace = workload(hpa, "scaleTargetRef")
    deployment = facts.named(DEPLOYMENTS.name, name, namespace) if kind == "Deployment" else None
    for manager in (deployment or {}).get("replicas set by") or ():
        if any(mark in manager for mark in GITOPS_MANAGERS):
            yield warning(
                f"deployment/{namespace}/{name}",
                message(
                    "{manager} sets spec.replicas, and HPA {name_of} as well: each sync undoes what the HPA did",
                    manager=manager,
                    name_of=name_of(hpa),
                ),
                message(
                    "kubectl get deployment {name} -n {namespace} --show-managed-fields -o yaml  # then "
                    "remove spec.replicas from its source",
                    name=name,
                    namespace=namespace,
                ),
            )
            return


def _resource_metrics(hpa: Json) -> set[str]:
    rows = (hpa.get("spec") or {}).get("metrics") or ()
    names = {(row.get("resource") or row.get("containerResource") or {}).get("name") for row in rows}
    return {str(name) for name in names if name}


def _update_mode(vpa: Json) -> str:
    return str(((vpa.get("spec") or {}).get("updatePolicy") or {}).get("updateMode") or "Auto")
