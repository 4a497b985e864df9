"""Verification: an independent check that a plan is possible. It imports the snapshot, the plan and the model alone, so
that a mistake of the packer cannot hide in it.
"""

from dovetail.planner.verify.verifier import Violation, verify

__all__ = ["Violation", "verify"]
