"""The page of a node group, under the name that its nodes' labels have."""

from __future__ import annotations

import json

import pytest
import yaml

from dovetail.kube.resources import CONFIGMAPS
from tests.web.test_access import ask
from tests.web.world import TOKEN, World


@pytest.mark.parametrize("name", ["workers", "eks-workers-9ec97a75"])
def test_a_group_is_explained_under_the_name_of_eks_and_of_its_auto_scaling_group(name: str) -> None:
    """The dashboard's links have EKS's name, the status of Cluster Autoscaler has that of the Auto Scaling group."""
    group = {"name": "eks-workers-9ec97a75", "health": {"cloudProviderTarget": 2, "minSize": 0, "maxSize": 2}}
    data = {
        "status": yaml.safe_dump({"nodeGroups": [group]}),
        "explanations": json.dumps({"members": {"n1": "eks-workers-9ec97a75"}}),
    }
    with World() as world:
        world.node("n1", labels={"eks.amazonaws.com/nodegroup": "workers"})
        status = {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}, "data": data}
        world.do(world.kube.create(CONFIGMAPS, status, "kube-system"))
        world.settle(lambda observer: "node/n1" in observer.view.nodes)
        cookie = ask(world, f"/?token={TOKEN}").headers["Set-Cookie"].partition(";")[0]
        page = ask(world, f"/group/{name}", cookie=cookie)
    assert page.status == 200
    assert "is at its largest" in page.text
