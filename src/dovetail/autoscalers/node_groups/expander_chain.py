"""The chain of expanders that --expander names, made anew for every loop: prices and priorities change."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.autoscalers.node_groups.expanders import (
    LEAST_NODES,
    LEAST_WASTE,
    MOST_PODS,
    PRICE,
    PRIORITY,
    PRIORITY_CONFIG_MAP,
    Filter,
    least_nodes,
    least_waste,
    most_pods,
    priority_filter,
)
from dovetail.autoscalers.node_groups.pricing import Prices, price_filter
from dovetail.autoscalers.node_groups.recording import LoopRecorder
from dovetail.cloud.node_groups import NodeGroupCloud
from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS

_PLAIN: Mapping[str, Filter] = {LEAST_WASTE: least_waste, MOST_PODS: most_pods, LEAST_NODES: least_nodes}


class ExpanderChain:
    """`filters` reads the priority ConfigMap if the chain has that expander."""

    def __init__(
        self, names: tuple[str, ...], kube: Kube, cloud: NodeGroupCloud, recording: LoopRecorder, namespace: str
    ) -> None:
        self.names = names
        self._kube = kube
        self._cloud = cloud
        self._record = recording
        self._namespace = namespace

    def prices(self) -> Prices:
        return Prices(self._cloud.prices(), self._cloud.spot_prices())

    async def filters(self, cluster_size: int) -> list[Filter]:
        filters: list[Filter] = []
        for name in self.names:
            if name in _PLAIN:
                filters.append(_PLAIN[name])
            elif name == PRICE:
                filters.append(price_filter(self.prices(), cluster_size))
            elif name == PRIORITY:
                filters.append(priority_filter(await self._priorities(), self._record.priority_warning))
        return filters

    async def _priorities(self) -> Mapping[str, str] | None:
        try:
            config = await self._kube.get(CONFIGMAPS, PRIORITY_CONFIG_MAP, self._namespace, type=dict)
        except NotFound:
            self._record.warning("priority", f"ConfigMap {self._namespace}/{PRIORITY_CONFIG_MAP} is missing")
            return None
        self._record.priority_uid = str(config["metadata"].get("uid", ""))
        return dict(config.get("data") or {})
