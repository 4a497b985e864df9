"""NodeClaims that were hashed by another version, or by Karpenter."""

from __future__ import annotations

from typing import Any

from dovetail.kube import resources as kinds
from dovetail.model.kinds import nodepool_hash

HASH, VERSION = nodepool_hash.HASH_ANNOTATION, nodepool_hash.VERSION_ANNOTATION


def test_nodeclaims_hashed_by_another_version_are_rehashed_and_do_not_drift(run_scenario: Any) -> None:
    """Otherwise they would never be compared again, and would not drift with a change of the NodePool."""

    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(1)
        [claim] = await world.list(kinds.NODECLAIMS)
        await world.stop()
        old = {"metadata": {"annotations": {HASH: "1", VERSION: "v1"}}}
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], old)
        await world.kube.patch(kinds.NODEPOOLS, "default", old)
        world.start()

        async def marked() -> bool:
            pool = await world.kube.get(kinds.NODEPOOLS, "default")
            return bool(pool["metadata"]["annotations"][VERSION] == nodepool_hash.VERSION)

        await world.until(marked)
        [again] = await world.list(kinds.NODECLAIMS)
        pool = await world.kube.get(kinds.NODEPOOLS, "default")
        assert again["metadata"]["uid"] == claim["metadata"]["uid"]
        assert again["metadata"]["annotations"][HASH] == pool["metadata"]["annotations"][HASH] != "1"
        assert again["metadata"]["annotations"][VERSION] == nodepool_hash.VERSION
        assert "Drifted" not in await world.conditions(again)

    run_scenario(scenario)
