"""What the API says about itself. First of all, while there are no definitions of others."""

from __future__ import annotations

from tests.conformance.steps import get

TOPICS = {
    "discovery": [
        get("/api"),
        get("/api/v1"),
        get("/apis"),
        get("/apis/apps"),
        get("/apis/apps/v1"),
        get("/apis/batch/v1"),
        get("/apis/autoscaling"),
        get("/apis/autoscaling/v1"),
        get("/apis/autoscaling/v2"),
        get("/apis/policy/v1"),
        get("/apis/storage.k8s.io/v1"),
        get("/apis/coordination.k8s.io/v1"),
        get("/apis/events.k8s.io/v1"),
        get("/apis/rbac.authorization.k8s.io/v1"),
        get("/apis/networking.k8s.io/v1"),
        get("/apis/scheduling.k8s.io/v1"),
        get("/apis/apiextensions.k8s.io/v1"),
        get("/apis/authorization.k8s.io/v1"),
        get("/apis/authentication.k8s.io/v1"),
        get("/apis/discovery.k8s.io/v1"),
        get("/apis/admissionregistration.k8s.io/v1"),
        get("/apis/apiregistration.k8s.io/v1"),
        get("/apis/node.k8s.io/v1"),
        get("/apis/certificates.k8s.io/v1"),
        get("/api", accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"),
        get("/apis", accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"),
        get(
            "/apis", accept="application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
        ),
        get(
            "/apis/apps/v1",
            accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
        ),
    ],
}
