"""Errors of a controller without credentials name the step of the installation that is missing."""

from __future__ import annotations

import pytest

from dovetail.cloud.aws.errors import explain
from dovetail.cloud.provider import Remedy


@pytest.mark.parametrize(
    ("code", "message", "step"),
    [
        ("InvalidIdentityToken", "No OpenIDConnect provider found in your account for https://oidc/x",
         "aws iam create-open-id-connect-provider"),
        ("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity", "eks.amazonaws.com/role-arn"),
        ("AccessDenied", "User: a is not authorized to perform: iam:GetRole", "the controller's IAM policy"),
    ],
)  # fmt: skip
def test_the_missing_step_is_named(code: str, message: str, step: str) -> None:
    error = explain(code, message)
    assert error.remedy is Remedy.OPERATOR
    assert step in error.message
    assert message in error.message
