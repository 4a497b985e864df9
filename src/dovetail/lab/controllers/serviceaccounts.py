"""Every namespace has a `default` ServiceAccount and the cluster's root certificate."""

from __future__ import annotations

from dovetail.kube.errors import AlreadyExists, Forbidden, NotFound
from dovetail.kube.resources import CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.views import Json
from dovetail.lab.controllers.worker import KeyWorker

ROOT_CERTIFICATE = "kube-root-ca.crt"
_NOTE = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of "
    "Kubernetes clusters."
)


class ServiceAccounts:
    """Makes what each namespace must have."""

    def __init__(self, context: ControllerContext, certificate: str = "") -> None:
        self._context = context
        self._certificate = certificate
        self._namespaces = context.store(NAMESPACES)
        accounts = context.store(SERVICEACCOUNTS)
        self.worker = KeyWorker("serviceaccount", self._reconcile)
        self._namespaces.listen(self._changed)
        accounts.listen(self._account_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None and old is None:
            self.worker.add(new["metadata"]["name"])

    def _account_changed(self, old: Json | None, new: Json | None) -> None:
        if new is None and old is not None and old["metadata"]["name"] == "default":
            self.worker.add(old["metadata"]["namespace"])

    async def _reconcile(self, namespace: str) -> float | None:
        item = self._namespaces.get(namespace)
        if item is None or item.get("status", {}).get("phase") == "Terminating":
            return None
        account = {"metadata": {"name": "default", "namespace": namespace}}
        bundle = {
            "metadata": {
                "name": ROOT_CERTIFICATE,
                "namespace": namespace,
                "annotations": {"kubernetes.io/description": _NOTE},
            },
            "data": {"ca.crt": self._certificate},
        }
        for resource, body in ((SERVICEACCOUNTS, account), (CONFIGMAPS, bundle)):
            try:
                await self._context.kube.create(resource, body)
            except (AlreadyExists, NotFound, Forbidden):
                continue  # it is there, or the namespace is on its way out
        return None
