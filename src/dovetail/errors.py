"""What a command says when it cannot do what was asked.

Exit statuses are the same everywhere: 0 is done, or a good answer; 1 is a bad answer (pods without a place, errors
found, a broken invariant); 2 is no answer, and the line that begins with `Error:` says what to do about it. `diff`
alone answers as `terraform plan` does: 2 is that there are changes, and 1 an error.
"""

from __future__ import annotations

import click


class UserError(click.ClickException):
    """Object, field, value, and the way out."""

    exit_code = 2
