"""The error of commands: see `dovetail.errors`."""

from dovetail.errors import Problem as Problem
