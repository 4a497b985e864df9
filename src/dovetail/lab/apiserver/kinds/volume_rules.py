"""Rules of volumes that pods, claims and CSI drivers share."""

from __future__ import annotations

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, invalid, required, too_long


def no_backsteps(path: str, field_path: str) -> list[FieldError]:
    return [invalid(field_path, path, "must not contain '..'")] if ".." in path.split("/") else []


def csi_driver_name(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    errors = [too_long(path, 63)] if formats.size(name) > 63 else []
    return errors + [invalid(path, name, text) for text in formats.subdomain(name.lower())]
