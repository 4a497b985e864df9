"""What every page is made of: the language, the view that this viewer may see, the moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.view.model import FleetView
from dovetail.view.observer import ContainerUsage, Observer
from dovetail.web.page_language import PageLanguage
from dovetail.web.palette import Palette
from dovetail.web.rights import ViewerRights


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a recording a page is. `before` and `after` are the nearest launches or removals of a node."""

    instant: datetime
    start: datetime
    end: datetime
    step: int
    steps: int
    before: datetime | None = None
    after: datetime | None = None
    #: When the recorder did not run, if that was then.
    gap: tuple[datetime, datetime] | None = None
    #: Whether the recording is still written, and whether the page then goes along with its end.
    growing: bool = False
    following: bool = False


class PageContext(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a page. `path` and `query` are what the URL says."""

    t: PageLanguage
    view: FleetView
    #: The number of the publication that `view` is from.
    publication: int = 0
    observer: Observer
    rights: ViewerRights
    palette: Palette
    now: datetime
    path: str = "/"
    query: Mapping[str, str] = {}
    theme: str = ""
    #: The name of the viewer where the cluster knows one; empty on the loopback.
    viewer: str = ""
    #: What the page is about: a cluster, or a recording.
    title: str = ""
    #: What a Cluster Autoscaler has written of its node groups; None on other pages and where there is none.
    group_status: Mapping[str, str] | None = None
    #: What the containers of the namespace of the page use, by the names of its pods; None where that is not known.
    pod_usage: Mapping[str, ContainerUsage] | None = None
    #: Where in the recording; None for a live cluster.
    moment: Moment | None = None
