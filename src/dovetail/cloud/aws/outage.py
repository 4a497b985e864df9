"""Whether EC2 can be used at all, from what it answered to the calls that were made anyway."""

from __future__ import annotations

from dovetail.clock import Clock
from dovetail.cloud.aws.errors import code_of, described, is_answer, message_of

#: A failure must have lasted this long: a lost connection or a renewed credential is no outage.
OUTAGE_AFTER_S = 30.0
#: An outage that no call has confirmed for this long is not known to last.
OUTAGE_KNOWN_FOR_S = 600.0

#: Refusals that say nothing about EC2 as a whole come with an answer; these say that no call of ours will do.
_LOCKED_OUT = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "NoCredentialsError",
        "CredentialRetrievalError",
        "SignatureDoesNotMatch",
    }
)


class Outage:
    """EC2 is out while every call of the last half minute failed without an answer, or for want of credentials."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._last = 0.0
        self._why = ""

    def heard(self, error: Exception | None) -> None:
        """A call to EC2 came to this; None if it went well."""
        if error is None or (is_answer(error) and code_of(error) not in _LOCKED_OUT):
            self._since = None
            return
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        self._last, self._why = now, described(code_of(error), message_of(error))

    def why(self) -> str | None:
        """What EC2 failed with, if it is out."""
        if self._since is None or self._clock.monotonic() - self._last > OUTAGE_KNOWN_FOR_S:
            return None
        return self._why if self._last - self._since >= OUTAGE_AFTER_S else None
