"""The lab's AWS endpoint: one loopback address behind which the real `aws` command finds every service."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from typing import Any

from dovetail.clock import wall
from dovetail.lab.aws import auto_scaling, moto_patches, policy_documents
from dovetail.lab.aws.addons import Addons
from dovetail.lab.aws.authentication import Authentication
from dovetail.lab.aws.authorization import Authorization
from dovetail.lab.aws.auto_scaling import AutoScaling
from dovetail.lab.aws.capacity_reservations import Book
from dovetail.lab.aws.cloudtrail import CallTrail
from dovetail.lab.aws.cluster_updates import ClusterUpdates
from dovetail.lab.aws.create_fleet import FleetContext
from dovetail.lab.aws.fargate_requests import FargateRequests
from dovetail.lab.aws.injected_errors import InjectedErrors
from dovetail.lab.aws.moto_gaps import Front
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.placement_groups import LabPlacementGroups
from dovetail.lab.aws.pod_identity import PodIdentityAssociations
from dovetail.lab.aws.policy_simulation import PolicySimulation
from dovetail.lab.aws.signatures import AccessKey, issued
from dovetail.lab.aws.web_identity import WebIdentity

ACCOUNT = "123456789012"


#: What opens an endpoint that is made without credentials of its own: one inside a test.
TEST_CREDENTIALS = AccessKey("lab", "lab")


def new_credentials() -> AccessKey:
    """An access key that nothing outside of the lab can guess."""
    return AccessKey(f"LAB{secrets.token_hex(8).upper()}", secrets.token_urlsafe(30))


class AwsEndpoint:
    """Starts at once in a thread of its own; `url` is where to send requests, signed with `credentials`."""

    def __init__(self, market: LabOfferings, port: int = 0, credentials: AccessKey = TEST_CREDENTIALS) -> None:
        # AWS's own policies are attached by the walk-throughs; moto loads them only on request.
        os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class QuietRequestHandler(WSGIRequestHandler):  # type: ignore[misc]
            def log_request(self, code: Any = "-", size: Any = "-") -> None:
                return None

            def parse_request(self) -> bool:
                """Refuse HTTP/0.9, whose answers have no status."""
                if not super().parse_request():
                    return False
                if self.request_version == "HTTP/0.9":
                    self.send_error(400, "the request line has no HTTP version")
                    return False
                return True

            def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
                """With a status line also where the request line could not be read."""
                self.request_version = "HTTP/1.1"
                super().send_error(code, message, explain)

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.market = market
        self.credentials = credentials
        self.book = Book(self._used)
        self.trouble = InjectedErrors()
        self.groups = LabPlacementGroups(self.instances)
        moto_patches.install(FleetContext(market, self.book, self.groups))
        self.scaling = AutoScaling(market)
        auto_scaling.install(self.scaling)
        moto = self.scaling.around(DomainDispatcherApplication(create_backend_app))
        self.front = Front(moto, market, self.book, self.groups, self.trouble)
        self.web_identity = WebIdentity(lambda: self.backend("iam", "aws"), wall)
        #: Tags of sessions that EKS Pod Identity gives out, by access key.
        self.session_tags: dict[str, dict[str, str]] = {}
        self.authorization = Authorization(self)
        self.pod_identity = PodIdentityAssociations(market.region, ACCOUNT)
        self.addons = Addons(market.region, ACCOUNT)
        self.fargate = FargateRequests(self, self.front.entries)
        updates = ClusterUpdates(self, wall)
        simulation = PolicySimulation(self.authorization)
        self.trail = CallTrail(ACCOUNT, self.instances, self.authorization.principal)
        self.front.services += [
            self.pod_identity.answer,
            self.addons.answer,
            self.fargate.answer,
            updates.answer,
            policy_documents.answer,
            simulation.answer,
            self.trail.answer,
        ]
        served = self.trail.around(self.front)
        judged = self.authorization.answer
        gate = Authentication(served, self.credentials_of, self.web_identity, wall, judged, self.trail.refused)
        self._server = make_server("127.0.0.1", port, gate, threaded=True, request_handler=QuietRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="aws-endpoint", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self) -> dict[str, str]:
        """What points the `aws` command and boto3 here."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": self.credentials.secret_key,
            "AWS_REGION": self.market.region,
            "AWS_DEFAULT_REGION": self.market.region,
        }

    def session(self) -> Any:
        """A session of boto3 with the lab's credentials."""
        import boto3

        return boto3.session.Session(
            aws_access_key_id=self.credentials.access_key,
            aws_secret_access_key=self.credentials.secret_key,
            region_name=self.market.region,
        )

    def credentials_of(self, access_key: str) -> AccessKey | None:
        return self.credentials if access_key == self.credentials.access_key else issued(access_key)

    def backend(self, service: str, region: str | None = None) -> Any:
        """moto's own state of a service, for the parts of the lab that are AWS themselves."""
        from moto.backends import get_backend

        return get_backend(service)[ACCOUNT][region or self.market.region]

    def instances(self) -> list[Any]:
        """Every instance EC2 knows, the terminated ones included."""
        backend = self.backend("ec2")
        return [i for reservation in list(backend.reservations.values()) for i in list(reservation.instances)]

    def _used(self, reservation: str) -> int:
        return sum(
            i.capacity_reservation_id == reservation and i.state in ("pending", "running") for i in self.instances()
        )

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(timeout=5)
        self._server.server_close()

    def forget(self) -> None:
        """Empty the account: moto keeps its state for the life of the process."""
        from moto.moto_api._internal import moto_api_backend

        moto_api_backend.reset()
        self.front.access.forget()
