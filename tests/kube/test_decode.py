"""What servers write is read, also where it is not what the type says at first sight."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.kube.decode import decode
from dovetail.model.volumes import CSINode


def test_a_null_where_a_list_belongs_is_an_empty_list() -> None:
    """The real server writes `topologyKeys: null` for drivers without any; their attach limits still count."""
    text = b'{"metadata":{"name":"n"},"spec":{"drivers":[{"name":"d","allocatable":{"count":3},"topologyKeys":null}]}}'
    (driver,) = decode(text, CSINode).spec.drivers
    assert driver.topology_keys == ()
    assert driver.allocatable is not None and driver.allocatable.count == 3


def test_what_is_wrong_stays_wrong() -> None:
    with pytest.raises(msgspec.ValidationError, match="drivers"):
        decode(b'{"metadata":{"name":null},"spec":{"drivers":"many"}}', CSINode)
