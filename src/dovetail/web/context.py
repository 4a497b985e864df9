"""What every page is made of: the language, the view that this viewer may see, the moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.view.model import FleetView
from dovetail.web.catalogue import Catalogue
from dovetail.web.palette import Palette
from dovetail.web.rights import Rights


class PageContext(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a page. `path` and `query` are what the URL says."""

    t: Catalogue
    view: FleetView
    rights: Rights
    palette: Palette
    now: datetime
    path: str = "/"
    query: Mapping[str, str] = {}
    theme: str = ""
    #: The name of the viewer where the cluster knows one; empty on the loopback.
    viewer: str = ""
    #: What the page is about: a cluster, or a recording.
    title: str = ""
