"""Choosing the renderer of an AMI family."""

from __future__ import annotations

import base64

from dovetail.cloud.aws.userdata import bottlerocket, linux, windows
from dovetail.cloud.aws.userdata.boot import BadUserData, Boot


def render(family: str, boot: Boot) -> str:
    """The user data of a family, base64 as the launch template wants it."""
    if family == "Custom":
        text = boot.custom or ""
    elif family == "AL2":
        text = linux.al2(boot)
    elif family == "AL2023":
        text = linux.al2023(boot)
    elif family == "Bottlerocket":
        text = bottlerocket.settings(boot)
    elif family.startswith("Windows"):
        text = windows.powershell(boot)
    else:
        raise BadUserData(f"amiFamily {family!r} has no user data of ours; use Custom and write it yourself")
    return base64.b64encode(text.encode()).decode()
