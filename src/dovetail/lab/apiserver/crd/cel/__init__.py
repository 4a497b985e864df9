"""The Common Expression Language as Kubernetes speaks it: parse once, evaluate many times, errors in its words.

Written here rather than taken from a library because rules see Kubernetes' own functions and types (quantities, URLs,
optional values), because their error texts are part of the API, and because a rule must cost microseconds.
"""

from dovetail.lab.apiserver.crd.cel.compile import Program, compile_expression
from dovetail.lab.apiserver.crd.cel.errors import CelError, CelSyntaxError

__all__ = ["CelError", "CelSyntaxError", "Program", "compile_expression"]
