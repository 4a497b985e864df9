"""The lab's AWS answers the lab's own credentials, and nothing else; what it refuses it refuses as AWS does."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import boto3
import pytest
from botocore.exceptions import ClientError

from dovetail.lab.aws.endpoint import AwsEndpoint, new_credentials
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.signatures import AccessKey

REGION = "ap-northeast-2"
FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
FORGED = {
    "Authorization": f"AWS4-HMAC-SHA256 Credential=any/20260101/{REGION}/ec2/aws4_request, "
    f"SignedHeaders=host, Signature={'0' * 64}"
}
DESCRIBE = b"Action=DescribeInstances&Version=2016-11-15"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[AwsEndpoint]:
    made = AwsEndpoint(LabOfferings(REGION, families=frozenset({"m5"})), credentials=new_credentials())
    yield made
    made.forget()
    made.close()


def _ask(
    endpoint: AwsEndpoint, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(endpoint.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def _client(endpoint: AwsEndpoint, service: str, credentials: AccessKey | None = None) -> Any:
    given = credentials or endpoint.credentials
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=endpoint.url,
        aws_access_key_id=given.access_key,
        aws_secret_access_key=given.secret_key,
        aws_session_token=given.session_token or None,
    )


def _signed(endpoint: AwsEndpoint) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request that boto3 signed."""
    sent: list[Any] = []
    client = _client(endpoint, "ec2")
    client.meta.events.register("before-send.ec2.DescribeInstances", lambda request, **_: sent.append(request))
    client.describe_instances()
    headers = {name: value.decode() if isinstance(value, bytes) else value for name, value in sent[0].headers.items()}
    return headers, sent[0].body if isinstance(sent[0].body, bytes) else sent[0].body.encode()


def test_the_lab_s_credentials_open_every_service(endpoint: AwsEndpoint) -> None:
    _client(endpoint, "ec2").describe_instances(Filters=[{"Name": "tag:a b/c", "Values": ["é*", "x+y"]}])
    _client(endpoint, "iam").create_role(RoleName="gate", AssumeRolePolicyDocument="{}")
    _client(endpoint, "ssm").get_parameters_by_path(Path="/aws/service")
    queue = _client(endpoint, "sqs").create_queue(QueueName="gate")["QueueUrl"]
    _client(endpoint, "sqs").send_message(QueueUrl=queue, MessageBody="a\nb")
    eks = _client(endpoint, "eks")
    eks.create_cluster(name="gate", roleArn="arn:aws:iam::123456789012:role/gate", resourcesVpcConfig={})
    eks.create_access_entry(clusterName="gate", principalArn="arn:aws:iam::123456789012:role/some/path/r")
    arn = eks.list_access_entries(clusterName="gate", maxResults=10)["accessEntries"][0]
    assert eks.describe_access_entry(clusterName="gate", principalArn=arn)["accessEntry"]["principalArn"] == arn


def test_the_real_aws_command_is_let_in(endpoint: AwsEndpoint) -> None:
    environment = {**os.environ, **endpoint.environment()}
    said = subprocess.run(
        ["aws", "sts", "get-caller-identity", "--output", "json"], env=environment, capture_output=True, check=True
    ).stdout
    assert json.loads(said)["Account"] == "123456789012"


@pytest.mark.parametrize("wrong", ["secret", "access key"])
def test_other_credentials_are_refused(endpoint: AwsEndpoint, wrong: str) -> None:
    good = endpoint.credentials
    given = AccessKey(good.access_key, "guess") if wrong == "secret" else AccessKey("lab", good.secret_key)
    expected = {"secret": "SignatureDoesNotMatch", "access key": "InvalidClientTokenId"}[wrong]
    in_json = {"secret": "InvalidSignatureException", "access key": "UnrecognizedClientException"}[wrong]
    calls = {
        "ec2": ("AuthFailure", lambda client: client.describe_instances()),
        "sts": (expected, lambda client: client.get_caller_identity()),
        "ssm": (in_json, lambda client: client.describe_parameters()),
        "eks": (in_json, lambda client: client.list_clusters()),
    }
    for service, (code, call) in calls.items():
        with pytest.raises(ClientError) as refused:
            call(_client(endpoint, service, given))
        assert refused.value.response["Error"]["Code"] == code
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_signature_is_good_for_its_own_request_alone(endpoint: AwsEndpoint) -> None:
    """Otherwise a signed request that was seen once would open the rest."""
    headers, body = _signed(endpoint)
    assert _ask(endpoint, "POST", "/", body, **headers)[0] == 200
    headers.pop("Content-Length", None)
    assert _ask(endpoint, "POST", "/", body.replace(b"Instances", b"Subnets"), **headers)[0] == 403
    assert _ask(endpoint, "POST", "/?Action=DescribeVpcs", body, **headers)[0] == 403


def test_sessions_and_keys_that_the_lab_gave_out_are_let_in(endpoint: AwsEndpoint) -> None:
    sts, iam = _client(endpoint, "sts"), _client(endpoint, "iam")
    role = sts.assume_role(RoleArn="arn:aws:iam::123456789012:role/x", RoleSessionName="session")["Credentials"]
    session = sts.get_session_token()["Credentials"]
    iam.create_user(UserName="u")
    key = iam.create_access_key(UserName="u")["AccessKey"]
    for given in (role, session, key):
        credentials = AccessKey(given["AccessKeyId"], given["SecretAccessKey"], given.get("SessionToken", ""))
        assert _client(endpoint, "sts", credentials).get_caller_identity()["Account"] == "123456789012"
        if credentials.session_token:
            bare = AccessKey(credentials.access_key, credentials.secret_key, "another")
            with pytest.raises(ClientError):
                _client(endpoint, "sts", bare).get_caller_identity()
    iam.delete_access_key(UserName="u", AccessKeyId=key["AccessKeyId"])
    with pytest.raises(ClientError):
        _client(endpoint, "sts", AccessKey(key["AccessKeyId"], key["SecretAccessKey"])).get_caller_identity()


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "form"),
    [
        ("POST", "/", DESCRIBE, FORM, "xml"),
        ("POST", "/", DESCRIBE, {**FORM, **FORGED}, "xml"),
        ("POST", "/", b"Action=GetCallerIdentity&Version=2011-06-15", FORM, "xml"),
        ("POST", "/", b"Action=AssumeRoleWithWebIdentity&RoleArn=a&RoleSessionName=s&WebIdentityToken=t", FORM, "xml"),
        ("GET", "/", b"", {}, "xml"),
        ("GET", "/?Action=DescribeInstances&Version=2016-11-15", b"", {}, "xml"),
        ("POST", "/", b"{}", {"X-Amz-Target": "AmazonSSM.GetParameter"}, "json"),
        ("POST", "/", b"{}", {"X-Amz-Target": "AWSPriceListService.GetProducts"}, "json"),
        ("GET", "/clusters", b"", {}, "json"),
        ("GET", "/clusters/dovetail/access-entries", b"", {}, "json"),
        ("GET", "/moto-api/data.json", b"", {}, "xml"),
        ("POST", "/moto-api/reset", b"", {"Origin": "http://evil.example"}, "xml"),
        ("GET", "/latest/meta-data/iam/security-credentials/", b"", {}, "xml"),
        ("OPTIONS", "/", b"", {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}, "xml"),
        ("PATCH", "/nowhere/%ff", b"\xff", {"Authorization": "Basic Zm9v"}, "xml"),
        ("POST", "/", b"x", {"Authorization": "AWS4-HMAC-SHA256 Credential=a", "X-Amz-Target": "x"}, "json"),
    ],
)
def test_what_is_not_signed_is_refused_in_the_form_of_its_service(
    endpoint: AwsEndpoint, method: str, path: str, body: bytes, headers: dict[str, str], form: str
) -> None:
    status, answered, text = _ask(endpoint, method, path, body, **headers)
    assert status == 403
    assert form in answered["content-type"]
    assert not [name for name in answered if name.startswith("access-control")]
    if form == "json":
        assert json.loads(text)["message"]
    else:
        assert [element.text for element in ElementTree.fromstring(text).iter() if element.tag == "Code"] != []


def test_another_host_is_refused_and_a_web_page_reads_nothing(endpoint: AwsEndpoint) -> None:
    """A page whose name was pointed at the loopback has its own name in the Host."""
    status, _, text = _ask(endpoint, "POST", "/", DESCRIBE, **FORM, Host="evil.example")
    assert status == 403 and b"evil.example" in text
    headers, body = _signed(endpoint)
    status, answered, _ = _ask(endpoint, "POST", "/", body, **headers, Origin="http://evil.example")
    assert status == 200
    assert [name for name in answered if name.startswith("access-control")] == []


def test_a_signed_request_for_nothing_that_moto_has_is_an_aws_error(endpoint: AwsEndpoint) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials as Signer

    good = endpoint.credentials
    for service, path in (("eks", "/no/such/path"), ("ec2", "/no/such/path"), ("moto_api", "/moto-api/data.json")):
        request = AWSRequest("GET", f"{endpoint.url}{path}")
        SigV4Auth(Signer(good.access_key, good.secret_key), service, REGION).add_auth(request)
        status, answered, text = _ask(endpoint, "GET", path, **dict(request.headers.items()))
        assert status in (403, 404), text
        assert "html" not in answered["content-type"]


@pytest.mark.parametrize("line", [b"GET /", b"GET / HTTP/9.9", b"GET / HTTP/", b"NO", b"\xff\xfe"])
def test_a_request_line_that_is_none_has_a_status(endpoint: AwsEndpoint, line: bytes) -> None:
    """The answer of HTTP/0.9 has none: a client takes the error for the document."""
    host, _, port = endpoint.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(line + b"\r\nHost: 127.0.0.1\r\n\r\n")
        answer = connection.recv(4096)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), answer[:80]


def _exchange(endpoint: AwsEndpoint, head: dict[str, str], content: bytes) -> bytes:
    host, _, port = endpoint.url.removeprefix("http://").partition(":")
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**head, "Connection": "close"}.items())
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + content)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_body_in_chunks_is_read_as_any_other(endpoint: AwsEndpoint) -> None:
    headers, body = _signed(endpoint)
    headers = {name: value for name, value in headers.items() if name != "Content-Length"}
    head = {**headers, "Host": endpoint.url.removeprefix("http://"), "Transfer-Encoding": "chunked"}
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:], b""))
    answer = _exchange(endpoint, head, chunks)
    assert answer.startswith(b"HTTP/1.1 200 ") and b"DescribeInstancesResponse" in answer


@pytest.mark.parametrize(
    ("head", "status"),
    [({"Transfer-Encoding": "chunked"}, b"400"), ({"Content-Length": "²"}, b"413"), ({"Content-Length": "-1"}, b"413")],
    ids=["chunks", "superscript", "negative"],
)
def test_a_body_whose_length_is_none_is_refused(endpoint: AwsEndpoint, head: dict[str, str], status: bytes) -> None:
    answer = _exchange(endpoint, {"Host": endpoint.url.removeprefix("http://"), **FORM, **head}, b"no length\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]
