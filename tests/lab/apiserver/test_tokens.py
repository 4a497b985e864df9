"""Tokens that were asked for with `kubectl create token`: accepted as the service account's, under its roles."""

from __future__ import annotations

import asyncio
import json

import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden, Unauthorized
from dovetail.kube.transport import Request
from dovetail.lab.apiserver import auth
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess

PATH = "/api/v1/namespaces/default/serviceaccounts/reader/token"


def test_a_token_is_that_of_its_service_account_until_it_expires() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        server = ApiServer(clock, Chance(1), tokens={"secret": auth.ADMIN})
        admin = InProcess(server, {"authorization": "Bearer secret"})
        await Kube(admin, clock).create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "reader"}}, "default")

        async def reader(**spec: object) -> Kube:
            body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}).encode()
            headers = {"content-type": "application/json"}
            answer = await admin.send(Request(method="POST", path=PATH, headers=headers, body=body))
            token = json.loads(answer.body)["status"]["token"]
            return Kube(InProcess(server, {"authorization": f"Bearer {token}"}), clock)

        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
        roles = kinds.Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
        bindings = kinds.Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
        operator = Kube(admin, clock)
        await operator.create(roles, {"metadata": {"name": "cluster-admin"}, "rules": []})  # RBAC is in force
        kube = await reader()
        with pytest.raises(Forbidden, match='"system:serviceaccount:default:reader" cannot list resource "pods"'):
            await kube.list(kinds.PODS)
        await operator.create(roles, {"metadata": {"name": "reader"}, "rules": [rule]})
        await operator.create(bindings, {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]})
        assert (await kube.list(kinds.PODS)).items == []
        for_others = await reader(audiences=["sts.amazonaws.com"])
        with pytest.raises(Unauthorized):
            await for_others.list(kinds.PODS)
        await asyncio.sleep(3600.0)
        with pytest.raises(Unauthorized):
            await kube.list(kinds.PODS)
        kube = await reader()
        await operator.delete(kinds.SERVICEACCOUNTS, "reader", "default")
        with pytest.raises(Unauthorized):
            await kube.list(kinds.PODS)

    run_virtual(main())
