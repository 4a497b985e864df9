"""The file of --cloud-config: which endpoint each service has in a region."""

from __future__ import annotations

import pytest

from dovetail.cloud.aws.cloud_config import CloudConfigError, ServiceEndpoint, service_endpoints

FILE = """
# of another program
[Global]
Zone = eu-west-1a

[ServiceOverride "1"]
Service = "Auto Scaling"
Region = eu-west-1
URL = http://127.0.0.1:5000 ; the test endpoint
SigningRegion = eu-west-1
SigningMethod = v4

[ServiceOverride "2"]
  Service=ec2
  Region=us-east-1
  URL=http://127.0.0.1:5001
  SigningRegion=us-east-2
"""


def test_services_have_the_endpoints_of_their_region() -> None:
    assert service_endpoints(FILE, "eu-west-1") == {
        "autoscaling": ServiceEndpoint("http://127.0.0.1:5000", "eu-west-1")
    }
    assert service_endpoints(FILE, "us-east-1") == {"ec2": ServiceEndpoint("http://127.0.0.1:5001", "us-east-2")}
    assert service_endpoints("", "eu-west-1") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[ServiceOverride "1"]\nService = ec2\nRegion = a\nSigningRegion = a', "url is missing"),
        (FILE + FILE.replace('"1"', '"3"').replace('"2"', '"4"'), "has an endpoint already"),
        ("Service", "line 1"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(text: str, problem: str) -> None:
    with pytest.raises(CloudConfigError, match=problem):
        service_endpoints(text, "eu-west-1")
