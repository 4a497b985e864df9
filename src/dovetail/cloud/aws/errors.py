"""What an AWS error means for whoever called: try again, next offering, next pool, or ask the operator.

One table. A code that is not in it is retried and shown by its own name, because an unknown error is
not evidence of anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.cloud.protocol import CloudError, Remedy

#: Fleet errors that say "not this offering, not now".
CAPACITY_CODES = frozenset({
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
})

NOT_FOUND_CODES = frozenset({
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateName.NotFoundException",
    "InvalidLaunchTemplateId.NotFound",
    "InvalidCapacityReservationId.NotFound",
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "NoSuchEntity",
    "ParameterNotFound",
    "ResourceNotFoundException",
})

THROTTLE_CODES = frozenset({
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException",
    "RequestThrottled", "RequestThrottledException", "EC2ThrottledException",
})

#: The role behind our credentials changed or ran out; a fresh set may work.
CREDENTIAL_CODES = frozenset({
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException",
    "AuthFailure",
})

SPOT_ROLE_CODE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

#: code -> (reason on the claim, remedy, what to do). Text without a cure speaks for itself.
_MEANING: Mapping[str, tuple[str, Remedy, str]] = {
    SPOT_ROLE_CODE: (
        "SpotSLRCreationFailed", Remedy.NEXT_OFFERING,
        "create the service-linked role once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    "UnauthorizedOperation": ("Unauthorized", Remedy.OPERATOR, "allow the action in the controller's IAM policy"),
    "AccessDenied": ("Unauthorized", Remedy.OPERATOR, "allow the action in the controller's IAM policy"),
    "AccessDeniedException": ("Unauthorized", Remedy.OPERATOR, "allow the action in the controller's IAM policy"),
    "InvalidAMIID.NotFound": ("AMINotFound", Remedy.OPERATOR, "check amiSelectorTerms of the EC2NodeClass"),
    "InvalidAMIID.Malformed": ("InvalidAMIID", Remedy.OPERATOR, "check amiSelectorTerms of the EC2NodeClass"),
    "InvalidAMIID.Unavailable": ("AMINotFound", Remedy.OPERATOR, "the image was deregistered; pick another"),
    "InvalidLaunchTemplateName.NotFoundException": ("LaunchTemplateNotFound", Remedy.RETRY, ""),
    "InvalidLaunchTemplateId.NotFound": ("LaunchTemplateNotFound", Remedy.RETRY, ""),
    "FreeTierIneligible": ("FreeTierIneligible", Remedy.OPERATOR, "the account may only launch free-tier types"),
    "InvalidParameterCombination": ("LaunchFailed", Remedy.OPERATOR, "check the EC2NodeClass"),
    "PendingVerification": ("AccountPendingVerification", Remedy.RETRY, "AWS is still verifying the account"),
    "MaxFleetCountExceeded": ("FleetQuotaExceeded", Remedy.NEXT_OFFERING, "raise the EC2 Fleet quota"),
    "MaxSpotInstanceCountExceeded": ("SpotQuotaExceeded", Remedy.NEXT_OFFERING, "raise the spot vCPU quota"),
    "VcpuLimitExceeded": ("VCPULimitExceeded", Remedy.NEXT_OFFERING, "raise the on-demand vCPU quota"),
    "InsufficientFreeAddressesInSubnet": (
        "InsufficientFreeAddressesInSubnet", Remedy.NEXT_OFFERING, "add subnets, or larger ones, to the EC2NodeClass",
    ),
    "InternalError": ("InternalError", Remedy.RETRY, ""),
    "InternalFailure": ("InternalError", Remedy.RETRY, ""),
    "ServiceUnavailable": ("InternalError", Remedy.RETRY, ""),
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


def explain(code: str, message: str) -> CloudError:
    """The error as a controller reads it: a reason for the condition, a remedy, and the way out in the text."""
    if code in THROTTLE_CODES:
        return CloudError("RequestLimitExceeded", f"{code}: {message}", Remedy.RETRY)
    if code in CREDENTIAL_CODES:
        cure = "renew the credentials (IRSA annotation, pod identity association or profile)"
        return CloudError("Unauthorized", f"{code}: {message}; {cure}", Remedy.OPERATOR)
    reason, remedy, cure = _MEANING.get(code, ("LaunchFailed", Remedy.RETRY, ""))
    if code == "InvalidParameterValue" or code == "InvalidParameter":
        reason, remedy, cure = _parameter(message)
    if code in CAPACITY_CODES and code not in _MEANING:
        reason, remedy = "InsufficientCapacityError", Remedy.NEXT_OFFERING
    return CloudError(reason, f"{code}: {message}" + (f"; {cure}" if cure else ""), remedy)


def _parameter(message: str) -> tuple[str, Remedy, str]:
    """InvalidParameterValue says what is wrong in its text alone."""
    text = message.lower()
    if "iam instance profile" in text:
        # A new profile takes some seconds to be known everywhere.
        return "InstanceProfileNameInvalid", Remedy.RETRY, "check role or instanceProfile of the EC2NodeClass"
    if "security group" in text and "subnet" in text:
        return "SecurityGroupSubnetVPCMismatch", Remedy.OPERATOR, "select groups and subnets of one VPC"
    if "user data" in text:
        return "UserDataSizeLimitExceeded", Remedy.OPERATOR, "shorten userData: EC2 takes 16384 bytes"
    return "LaunchFailed", Remedy.OPERATOR, "check the EC2NodeClass"
