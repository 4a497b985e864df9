"""What an AWS error means for the caller: try again, next offering, next pool, or ask the operator.

One table. A code that is not in it is retried and shown by its own name, because an unknown error is
not evidence of anything. A message ends with the remedy and a code of our own vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import msgspec

from dovetail.cloud.provider import UNAUTHORIZED, CloudError, Remedy
from dovetail.language import source
from dovetail.model.reasons import REASONS

T = TypeVar("T")

#: Fleet errors that say "not this offering, not now".
CAPACITY_CODES = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
        "InsufficientHostCapacity",
        "InsufficientCapacity",
        "InstanceLimitExceeded",
    }
)

NOT_FOUND_CODES = frozenset(
    {
        "InvalidInstanceID.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidCapacityReservationId.NotFound",
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "NoSuchEntity",
        "ParameterNotFound",
        "ResourceNotFoundException",
    }
)

#: A service asks to slow down, by whatever name it has for that. Quotas ("LimitExceeded") are not throttling.
THROTTLE_CODES = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestThrottled",
        "RequestThrottledException",
        "EC2ThrottledException",
        "SlowDown",
        "BandwidthLimitExceeded",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "TransactionInProgressException",
        "LimitExceededException",
    }
)

#: The role behind our credentials changed or ran out; a fresh set may work.
CREDENTIAL_CODES = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "AuthFailure",
        "NoCredentialsError",
        "CredentialRetrievalError",
    }
)

#: Failures on the way to a service.
_UNREACHABLE = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ConnectionClosedError",
        "SSLError",
        "ProxyConnectionError",
        "IncompleteRead",
        "IncompleteReadError",
        "ResponseStreamingError",
        "HTTPClientError",
        "ConnectionError",
        "RequestTimeout",
        "RequestTimeoutException",
    }
)
#: Failures of a service. An answer without a code (of a proxy or load balancer, say) has its HTTP status for one.
_SERVICE_FAILURES = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServerException",
        "InternalServiceError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "ServiceFailure",
        "ServerException",
        "Unavailable",
        "ResponseParserError",
        "500",
        "502",
        "503",
        "504",
    }
)
#: The same call may succeed a moment later.
_PASSING = THROTTLE_CODES | _UNREACHABLE | _SERVICE_FAILURES

SPOT_ROLE_CODE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
_SPOT_ROLE = source("create the role once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com")
_ISSUER = source(
    "register the cluster's OIDC issuer with IAM: aws iam create-open-id-connect-provider --url ISSUER"
    " --client-id-list sts.amazonaws.com"
)
_WEB_IDENTITY = "sts:AssumeRoleWithWebIdentity"
_TRUST = source(
    "check that the role of the service account's annotation eks.amazonaws.com/role-arn exists, and that its trust"
    " policy names the cluster's OIDC issuer and this service account"
)
_POLICY = source("allow the action in the controller's IAM policy")
#: Of a longer message the beginning is enough; the log has all of it.
MAX_MESSAGE_CHARACTERS = 1000
_HINT = source("aws sts decode-authorization-message reads the rest from the log")
_ENCODED = re.compile(r"\s*Encoded authorization failure message: \S+")


class Meaning(msgspec.Struct, frozen=True):
    """`reason` is for the condition, `code` of our vocabulary; a remedy of its own comes before the vocabulary's."""

    reason: str
    remedy: Remedy
    code: str
    fix: str = ""


_CLASS = source("check the EC2NodeClass")
_IMAGE = source("check amiSelectorTerms of the EC2NodeClass")
_UNKNOWN = Meaning("LaunchFailed", Remedy.RETRY, "CLOUD_ERROR")
_THROTTLED = Meaning("RequestLimitExceeded", Remedy.RETRY, "THROTTLED")
_CREDENTIALS = Meaning(
    UNAUTHORIZED,
    Remedy.OPERATOR,
    "UNAUTHORIZED",
    source("renew the credentials (IRSA annotation, pod identity association or profile)"),
)
_CAPACITY = Meaning("InsufficientCapacityError", Remedy.NEXT_OFFERING, "NO_OFFERING")
_FORBIDDEN = Meaning(UNAUTHORIZED, Remedy.OPERATOR, "UNAUTHORIZED", _POLICY)
_UNTRUSTED = Meaning(UNAUTHORIZED, Remedy.OPERATOR, "UNAUTHORIZED", _TRUST)
_NO_TEMPLATE = Meaning("LaunchTemplateNotFound", Remedy.RETRY, "CLOUD_ERROR")
_FAILURE = Meaning("InternalError", Remedy.RETRY, "CLOUD_ERROR")
_GONE = Meaning(
    "InsufficientCapacityError", Remedy.NEXT_OFFERING, "NO_OFFERING", source("renew or drop the reservation")
)
_NO_ROUTE = Meaning(
    "Unreachable",
    Remedy.RETRY,
    "CLOUD_ERROR",
    source("it is tried again; check the route to AWS (NAT or VPC endpoints, proxy, AWS_REGION)"),
)
_NO_GROUP = Meaning(
    "SecurityGroupNotFound",
    Remedy.OPERATOR,
    "BAD_NODECLASS",
    source("check securityGroupSelectorTerms of the EC2NodeClass"),
)
_NOT_IN_ZONE = Meaning("Unsupported", Remedy.NEXT_OFFERING, "NO_OFFERING")
_MEANING: Mapping[str, Meaning] = {
    SPOT_ROLE_CODE: Meaning("SpotSLRCreationFailed", Remedy.NEXT_OFFERING, "UNAUTHORIZED", _SPOT_ROLE),
    "UnauthorizedOperation": _FORBIDDEN,
    "AccessDenied": _FORBIDDEN,
    "AccessDeniedException": _FORBIDDEN,
    "InvalidIdentityToken": Meaning(UNAUTHORIZED, Remedy.OPERATOR, "UNAUTHORIZED", _ISSUER),
    "InvalidAMIID.NotFound": Meaning("AMINotFound", Remedy.OPERATOR, "BAD_NODECLASS", _IMAGE),
    "InvalidAMIID.Malformed": Meaning("InvalidAMIID", Remedy.OPERATOR, "BAD_NODECLASS", _IMAGE),
    "InvalidAMIID.Unavailable": Meaning("AMINotFound", Remedy.OPERATOR, "BAD_NODECLASS", _IMAGE),
    "InvalidLaunchTemplateName.NotFoundException": _NO_TEMPLATE,
    "InvalidLaunchTemplateId.NotFound": _NO_TEMPLATE,
    "FreeTierIneligible": Meaning(
        "FreeTierIneligible", Remedy.OPERATOR, "QUOTA", source("the account may only launch free-tier types")
    ),
    "InvalidParameterCombination": Meaning("LaunchFailed", Remedy.OPERATOR, "BAD_NODECLASS", _CLASS),
    "PendingVerification": Meaning(
        "AccountPendingVerification", Remedy.RETRY, "CLOUD_ERROR", source("AWS is still verifying the account")
    ),
    "MaxFleetCountExceeded": Meaning(
        "FleetQuotaExceeded", Remedy.NEXT_OFFERING, "QUOTA", source("raise the EC2 Fleet quota of the account")
    ),
    "MaxSpotInstanceCountExceeded": Meaning(
        "SpotQuotaExceeded",
        Remedy.NEXT_OFFERING,
        "QUOTA",
        source("raise the quota 'All Standard Spot Instance Requests' (vCPUs), or allow on-demand"),
    ),
    "VcpuLimitExceeded": Meaning(
        "VCPULimitExceeded",
        Remedy.NEXT_OFFERING,
        "QUOTA",
        source("raise the quota 'Running On-Demand Standard instances' (vCPUs), or allow spot"),
    ),
    "InsufficientFreeAddressesInSubnet": Meaning(
        "InsufficientFreeAddressesInSubnet",
        Remedy.NEXT_OFFERING,
        "SUBNET_FULL",
        source("add subnets, or larger ones, to the EC2NodeClass"),
    ),
    "InvalidCapacityReservationId.NotFound": _GONE,
    "ReservationCapacityExceeded": Meaning(
        "ReservationCapacityExceeded",
        Remedy.NEXT_OFFERING,
        "RESERVATION_FULL",
        source("wait, or allow on-demand or spot"),
    ),
    "InstanceLimitExceeded": Meaning(
        "InstanceLimitExceeded",
        Remedy.NEXT_OFFERING,
        "QUOTA",
        source("raise the account's instance quota, or allow other types"),
    ),
    "LimitExceeded": Meaning("QuotaExceeded", Remedy.OPERATOR, "QUOTA"),
    "ResourceLimitExceeded": Meaning("QuotaExceeded", Remedy.OPERATOR, "QUOTA"),
    "InvalidSubnetID.NotFound": Meaning(
        "SubnetNotFound", Remedy.OPERATOR, "BAD_NODECLASS", source("check subnetSelectorTerms of the EC2NodeClass")
    ),
    "InvalidSubnet": Meaning(
        "SubnetNotFound", Remedy.OPERATOR, "BAD_NODECLASS", source("check subnetSelectorTerms of the EC2NodeClass")
    ),
    "InvalidGroup.NotFound": _NO_GROUP,
    "InvalidSecurityGroupID.NotFound": _NO_GROUP,
    "InvalidSnapshot.NotFound": Meaning(
        "SnapshotNotFound",
        Remedy.OPERATOR,
        "BAD_NODECLASS",
        source("check blockDeviceMappings and amiSelectorTerms of the EC2NodeClass: a snapshot is gone"),
    ),
    "OptInRequired": Meaning(
        "OptInRequired",
        Remedy.OPERATOR,
        "UNAUTHORIZED",
        source("subscribe to the AMI's product in the AWS Marketplace, or enable the service in the account"),
    ),
    "OperationNotPermitted": Meaning(
        "OperationNotPermitted",
        Remedy.OPERATOR,
        "UNAUTHORIZED",
        source("switch off the instance's termination protection (disableApiTermination)"),
    ),
    "IdempotentParameterMismatch": Meaning("IdempotentParameterMismatch", Remedy.RETRY, "CLOUD_ERROR"),
}


def code_of(error: BaseException) -> str:
    """The AWS error code of a botocore error; the class name for everything else."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", type(error).__name__))
    return type(error).__name__


def message_of(error: BaseException) -> str:
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Message", "")) or str(error)
    return str(error)


def is_not_found(error: BaseException) -> bool:
    return code_of(error) in NOT_FOUND_CODES


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later."""
    return code_of(error) in _PASSING


def is_answer(error: BaseException) -> bool:
    """Whether a service answered that it did not do it; otherwise it may have been done, and the answer lost."""
    return isinstance(getattr(error, "response", None), dict) and not is_passing(error)


def is_shortage(code: str, message: str = "") -> bool:
    """Whether an offering cannot be had now, and another may be."""
    return code in CAPACITY_CODES | {SPOT_ROLE_CODE} or meaning(code, message) is _NOT_IN_ZONE


def may_concern_one(error: BaseException) -> bool:
    """Whether a batch may have failed by the fault of one of its members.

    Throttling, lost credentials and a service out of reach concern every member: to ask for each alone would only add
    to the trouble.
    """
    return code_of(error) not in THROTTLE_CODES | CREDENTIAL_CODES | _UNREACHABLE


def meaning(code: str, message: str) -> Meaning:
    if code in THROTTLE_CODES:
        return _THROTTLED
    if code in CREDENTIAL_CODES:
        return _CREDENTIALS
    if code in _UNREACHABLE:
        return _NO_ROUTE
    if code in _SERVICE_FAILURES:
        return _FAILURE
    if code == "AccessDenied" and message.startswith(f"Not authorized to perform {_WEB_IDENTITY}"):
        return _UNTRUSTED
    if code in ("InvalidParameterValue", "InvalidParameter"):
        return _parameter(message)
    if code in ("InvalidFleetConfiguration", "InvalidFleetConfig"):
        return _fleet(message)
    return _MEANING.get(code, _CAPACITY if code in CAPACITY_CODES else _UNKNOWN)


def explain(code: str, message: str) -> CloudError:
    """The error as a controller reads it: a reason for the condition, a remedy, and the way out in the text."""
    meaning_ = meaning(code, message)
    return CloudError(meaning_.reason, described(code, message), meaning_.remedy, detail=f"{code}: {message}")


def described(code: str, message: str) -> str:
    """What AWS said, the way out, and our code for it; what AWS encoded is for the log alone."""
    meaning_ = meaning(code, message)
    short = _ENCODED.sub("", message)
    if len(short) > MAX_MESSAGE_CHARACTERS:  # the page of a proxy or load balancer, say
        short = f"{' '.join(short.split())[:MAX_MESSAGE_CHARACTERS]}..."
    hint = "" if short == message else f" ({_HINT})"
    return f"{code}: {short.rstrip('.')}{hint}; {meaning_.fix or REASONS[meaning_.code].remedy} ({meaning_.code})"


def _parameter(message: str) -> Meaning:
    """InvalidParameterValue says what is wrong in its text alone."""
    text = message.lower()
    if "iam instance profile" in text:
        # A new profile takes some seconds to be known everywhere.
        fix = source("check role or instanceProfile of the EC2NodeClass")
        return Meaning("InstanceProfileNameInvalid", Remedy.RETRY, "BAD_NODECLASS", fix)
    if "security group" in text and "subnet" in text:
        fix = source("select groups and subnets of one VPC")
        return Meaning("SecurityGroupSubnetVPCMismatch", Remedy.OPERATOR, "BAD_NODECLASS", fix)
    if "user data" in text:
        fix = source("shorten userData: EC2 takes 16384 bytes")
        return Meaning("UserDataSizeLimitExceeded", Remedy.OPERATOR, "BAD_NODECLASS", fix)
    return Meaning("LaunchFailed", Remedy.OPERATOR, "BAD_NODECLASS", _CLASS)


def _fleet(message: str) -> Meaning:
    """InvalidFleetConfiguration: an offering that a zone does not have, or a class that no instance can be made of."""
    if "not supported in your requested availability zone" in message.lower():
        return _NOT_IN_ZONE
    return Meaning("InvalidFleetConfiguration", Remedy.OPERATOR, "BAD_NODECLASS", _CLASS)


async def asked(answer: Awaitable[T]) -> T:
    """Await an answer; AWS's errors come out as ours."""
    try:
        return await answer
    except CloudError:
        raise
    except Exception as error:  # whatever botocore raises is classified in one place
        raise explain(code_of(error), message_of(error)) from error
