"""AWS Cost and Usage reports, as CSV: what an hour of an instance type was charged, by zone and capacity type.

Read are rows of EC2 instance usage (`BoxUsage`, `SpotUsage`) of the legacy report (`lineItem/UsageType`) and of CUR 2.0
(`line_item_usage_type`). A row without an amount, and usage of other services, is left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator

from dovetail.language import message
from dovetail.model.labels import ON_DEMAND, SPOT
from dovetail.offline.conversion.entries import Entry, NotThisFormat, SetPrice, parse_time
from dovetail.offline.recording import OfferingKey

#: Field -> its names in the legacy report and in CUR 2.0.
_FIELDS = {
    "usage": ("lineItem/UsageType", "line_item_usage_type"),
    "start": ("lineItem/UsageStartDate", "line_item_usage_start_date"),
    "amount": ("lineItem/UsageAmount", "line_item_usage_amount"),
    "cost": ("lineItem/UnblendedCost", "line_item_unblended_cost"),
    "zone": ("lineItem/AvailabilityZone", "line_item_availability_zone"),
    "region": ("product/regionCode", "product_region_code"),
}
_USAGE = re.compile(r"(?:[A-Z0-9]+-)?(BoxUsage|SpotUsage)(?::([a-z0-9.-]+))?")


def entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Prices, in the order of the rows."""
    rows = csv.DictReader(lines)
    names = set(rows.fieldnames or ())
    columns = {field: next((name for name in aliases if name in names), "") for field, aliases in _FIELDS.items()}
    missing = [aliases[0] for field, aliases in _FIELDS.items() if field != "zone" and not columns[field]]
    if missing:
        raise NotThisFormat(message("columns are missing: {names}", names=", ".join(missing)))
    for number, row in enumerate(rows, 2):
        usage = _USAGE.fullmatch(row[columns["usage"]] or "")
        if usage is None or usage[2] is None:
            continue
        try:
            amount, cost = float(row[columns["amount"]]), float(row[columns["cost"]])
        except (TypeError, ValueError) as problem:
            raise NotThisFormat(message("line {number}: {problem}", number=number, problem=problem)) from problem
        if amount > 0 and cost > 0:
            zone = (row[columns["zone"]] or "") if columns["zone"] else ""
            kind = SPOT if usage[1] == "SpotUsage" else ON_DEMAND
            key = OfferingKey(row[columns["region"]] or "", usage[2], zone, kind)
            yield SetPrice(parse_time(row[columns["start"]]), key, round(cost / amount, 6), "cost and usage report")
