"""What the controller, the clocks and a lab say of themselves: safe mode (V07), clocks (V08), injected faults (V09)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from dovetail.install.doctor.collect import LAB_FAULTS, SAFE_MODE
from dovetail.install.doctor.facts import Facts, Fault, Json, State, event_time, moment, name_of, warning
from dovetail.kube.resources import LEASES
from dovetail.language import message

#: A clock that is further ahead breaks signatures, certificates and leases sooner or later.
MAX_CLOCK_LEAD = timedelta(seconds=60)
NOTHING_BROKEN = "nothing is broken"


def safe_mode_event(facts: Facts) -> Json | None:
    """The event by which safe mode began, if it lasts; one is enough, since all NodePools get the same."""
    events = sorted(facts.items(SAFE_MODE), key=event_time)
    return events[-1] if events and events[-1].get("type") == "Warning" else None


def check_safe_mode(facts: Facts) -> Iterator[Fault]:
    event = safe_mode_event(facts)
    if event is not None:
        yield warning(
            f"nodepool/{(event.get('regarding') or event.get('involvedObject') or {}).get('name', '')}",
            message("the controller is in safe mode: {note}", note=event.get("note") or event.get("message", "")),
            "dovetail history --kind safe-mode",
        )


def check_clocks(facts: Facts) -> Iterator[Fault]:
    """A lease that is renewed in the future has a holder whose clock is ahead; one that lags looks silent."""
    for lease in facts.items(LEASES.name):
        renewed = moment((lease.get("spec") or {}).get("renewTime"))
        if renewed is not None and renewed - facts.time > MAX_CLOCK_LEAD:
            holder = (lease.get("spec") or {}).get("holderIdentity") or lease["metadata"]["name"]
            ahead = (renewed - facts.time).total_seconds()
            yield warning(
                f"lease/{name_of(lease)}",
                message(
                    "spec.renewTime of its holder {holder} is {ahead:.0f} s ahead of the API server: its "
                    "clock is wrong, and AWS refuses requests that are signed more than 5 minutes off",
                    holder=holder,
                    ahead=ahead,
                ),
                message(
                    "kubectl debug node/{holder} -it --image=busybox -- date -u  # then start chronyd on the node",
                    holder=holder,
                ),
            )


def check_lab(facts: Facts) -> Iterator[Fault]:
    if LAB_FAULTS in facts.answers and facts.answers[LAB_FAULTS].state is State.REFUSED:
        return  # a cluster that is no lab refuses pages that it does not have
    page = facts.read(LAB_FAULTS)
    text = str(page.get("message") or NOTHING_BROKEN) if isinstance(page, dict) else NOTHING_BROKEN
    if text != NOTHING_BROKEN:
        yield warning("lab", message("faults are injected into this lab: {said}", said=text), "dovetail fault mend")
