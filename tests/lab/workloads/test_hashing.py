"""The hashes in generated names, held to what a real control plane made of the same templates."""

from __future__ import annotations

from typing import Any

from dovetail.lab.controllers.hashing import dump, revision_hash, template_hash

CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
POD = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}


def php_apache() -> dict[str, Any]:
    container = {
        **CONTAINER,
        "name": "php-apache",
        "image": "registry.k8s.io/hpa-example",
        "imagePullPolicy": "Always",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "200m"}},
    }
    return {"metadata": {"labels": {"run": "php-apache"}}, "spec": {**POD, "containers": [container]}}


def test_a_replicaset_is_named_as_kubernetes_names_it() -> None:
    assert template_hash(php_apache()) == "544695f45"


def test_a_collision_changes_the_name() -> None:
    assert template_hash(php_apache(), 1) != template_hash(php_apache())


def test_empty_and_absent_are_the_same_to_the_hash() -> None:
    template = php_apache()
    template["spec"] |= {"nodeSelector": {}, "tolerations": []}
    assert template_hash(template) == "544695f45"


def test_quantities_show_how_they_were_parsed() -> None:
    template = php_apache()
    template["spec"]["containers"][0]["resources"] = {"limits": {"memory": "3Gi"}, "requests": {"memory": "8Gi"}}
    text = dump(template)
    assert "value:(int64)3221225472 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} " in text
    assert "s:(string)3Gi Format:(resource.Format)BinarySI" in text
    assert "s:(string) Format:(resource.Format)BinarySI" in text


def test_a_statefulset_revision_is_hashed_by_its_json() -> None:
    data = {"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "a&b"}}}}}
    assert revision_hash(data) != revision_hash(data, 1)
    turned = dict(reversed(data["spec"]["template"].items()))
    assert revision_hash(data) == revision_hash({"spec": {"template": turned}})
