"""What EC2's error codes mean for us.

Source: "Error codes for the Amazon EC2 API" in the EC2 API reference.
"""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
)
from botocore.parsers import ResponseParserError

from bursting.clouds.port import (
    CapacityUnavailable,
    CloudTrouble,
    CloudUnavailable,
    InstanceNotVisible,
    LaunchRefused,
    PriceAboveCap,
    QuotaExceeded,
    TokenReused,
)

MEANING: dict[str, type[CloudTrouble]] = {
    "InsufficientCapacity": CapacityUnavailable,
    "InsufficientHostCapacity": CapacityUnavailable,
    "InsufficientInstanceCapacity": CapacityUnavailable,
    "InsufficientReservedInstanceCapacity": CapacityUnavailable,
    "InstanceLimitExceeded": QuotaExceeded,
    "MaxSpotInstanceCountExceeded": QuotaExceeded,
    "VcpuLimitExceeded": QuotaExceeded,
    "SpotMaxPriceTooLow": PriceAboveCap,
    "IdempotentInstanceTerminated": TokenReused,
    "IdempotentParameterMismatch": TokenReused,
    "InvalidInstanceID.Malformed": InstanceNotVisible,
    "InvalidInstanceID.NotFound": InstanceNotVisible,
}
THROTTLED = {"RequestLimitExceeded", "RequestThrottled", "Throttling", "ThrottlingException"}
NOT_ALLOWED = {
    "AuthFailure",
    "Blocked",
    "InvalidClientTokenId",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
}


def explain(
    error: ClientError | BotoCoreError | ResponseParserError, *, is_launch: bool
) -> CloudTrouble:
    """Return what `error` means; never raises."""
    if isinstance(error, ClientError):
        return _explain_answer(error, is_launch=is_launch)
    if isinstance(error, ConnectTimeoutError | EndpointConnectionError):
        return CloudUnavailable(str(error), retryable=True, outcome_unknown=False)
    if isinstance(error, HTTPClientError | ResponseParserError):
        return CloudUnavailable(str(error), retryable=True, outcome_unknown=True)
    return CloudUnavailable(str(error), retryable=False, outcome_unknown=False)


def _explain_answer(error: ClientError, *, is_launch: bool) -> CloudTrouble:
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in MEANING:
        return MEANING[code](str(error))
    if code in THROTTLED:
        return CloudUnavailable(str(error), retryable=True, outcome_unknown=False)
    if code in NOT_ALLOWED:
        return CloudUnavailable(str(error), retryable=False, outcome_unknown=False)
    if status >= 500:
        return CloudUnavailable(str(error), retryable=True, outcome_unknown=True)
    if is_launch:
        return LaunchRefused(str(error))
    return CloudUnavailable(str(error), retryable=False, outcome_unknown=False)
