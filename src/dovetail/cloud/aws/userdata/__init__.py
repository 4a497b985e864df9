"""User data of an instance, by AMI family. The user's own part runs first, ours last."""

from dovetail.cloud.aws.userdata.boot import BadUserData, Boot
from dovetail.cloud.aws.userdata.render import render

__all__ = ["BadUserData", "Boot", "render"]
