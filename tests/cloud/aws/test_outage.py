"""Whether EC2 can be used at all, by the calls that were made anyway."""

from __future__ import annotations

import asyncio

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.outage import OUTAGE_KNOWN_FOR_S, Outage


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": "no"}}


class EndpointConnectionError(Exception):
    pass


def test_ec2_is_out_once_every_call_of_half_a_minute_failed_and_back_with_the_first_answer() -> None:
    async def main() -> None:
        outage = Outage(Clock(asyncio.get_running_loop()))
        for failure in (EndpointConnectionError("no route"), Refused("ExpiredToken")):
            outage.heard(failure)
            assert outage.why() is None
            await asyncio.sleep(31)
            outage.heard(failure)
            assert type(failure).__name__ in str(outage.why()) or "ExpiredToken" in str(outage.why())
            outage.heard(Refused("InvalidSubnetID.NotFound"))
            assert outage.why() is None, "a refusal of one call is an answer"
            outage.heard(failure)
            await asyncio.sleep(31)
            outage.heard(failure)
            assert outage.why() is not None
            outage.heard(None)
            assert outage.why() is None

    run_virtual(main())


def test_an_outage_that_no_call_confirms_is_not_known_to_last() -> None:
    async def main() -> None:
        outage = Outage(Clock(asyncio.get_running_loop()))
        for _ in range(2):
            outage.heard(EndpointConnectionError("no route"))
            await asyncio.sleep(31)
        assert outage.why() is not None
        await asyncio.sleep(OUTAGE_KNOWN_FOR_S)
        assert outage.why() is None

    run_virtual(main())
