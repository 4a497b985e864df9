"""How laws are tested: whatever the speed of the machine, and the same way every time where landing depends on it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dovetail", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dovetail"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dovetail")
