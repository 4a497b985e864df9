"""The labelled corpus of explanations: clusters in which one thing is wrong, and which.

Each case is a small cluster of several NodePools, a pod that one of them is meant for, and one fault. The other
NodePools are none that the pod may use: another team's, tainted, too old to be ready. What is right follows from how
the case is made, never from what the explanation says. `python -m tests.explain.generate` writes the corpus again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from tests.explain.cluster_case import Case, Expected, Json
from tests.explain.fault_pairs import (
    class_not_ready_at_the_limit,
    class_not_ready_beside_too_small,
    leaving_beside_limit,
    limit_beside_too_small,
    memory_limit_beside_taint,
    misspelt_value_at_the_limit,
    other_zone_beside_too_small,
    taint_at_the_limit,
    taint_of_a_pool_not_ready,
    tainted_beside_too_small,
    unknown_label_beside_taints,
)
from tests.explain.faults import (
    absent_class_of_claim,
    alone,
    another_pool_by_name,
    claim_without_class,
    class_not_ready,
    contradicting_pool,
    cpu_limit,
    devices,
    exceeded_limit,
    kept_apart,
    kept_from_its_team,
    larger_than_any,
    letters_as_types,
    memory_limit,
    min_values,
    missing_claim,
    misspelt_label,
    misspelt_value,
    no_gpu,
    no_pool,
    node_limit,
    node_of_another_name,
    other_arch,
    other_system,
    out_of_capacity,
    pool_leaving,
    pool_not_ready,
    port_of_daemons,
    required_affinity,
    spot_only,
    taint,
    tainted_gpu_pool,
    too_many_domains,
    too_much_cpu,
    too_much_disk,
    too_much_memory,
    too_much_of_two,
    too_small_pool,
    two_taints,
    unknown_label,
    volume_zone,
    wrong_type,
    zero_limit,
    zone_not_allowed,
    zone_of_nowhere,
)

CORPUS = Path(__file__).with_name("corpus.jsonl")


FAULTS: tuple[Callable[[Case], Expected], ...] = (
    misspelt_value,
    unknown_label,
    misspelt_label,
    taint,
    two_taints,
    too_much_cpu,
    too_much_memory,
    too_small_pool,
    too_much_disk,
    cpu_limit,
    memory_limit,
    node_limit,
    zero_limit,
    volume_zone,
    min_values,
    pool_not_ready,
    pool_leaving,
    class_not_ready,
    no_pool,
    zone_not_allowed,
    other_arch,
    spot_only,
    wrong_type,
    required_affinity,
    letters_as_types,
    zone_of_nowhere,
    no_gpu,
    tainted_gpu_pool,
    missing_claim,
    too_many_domains,
    kept_apart,
    alone,
    port_of_daemons,
    out_of_capacity,
    node_of_another_name,
    devices,
    limit_beside_too_small,
    class_not_ready_beside_too_small,
    leaving_beside_limit,
    tainted_beside_too_small,
    other_zone_beside_too_small,
    class_not_ready_at_the_limit,
    taint_at_the_limit,
    taint_of_a_pool_not_ready,
    misspelt_value_at_the_limit,
    unknown_label_beside_taints,
    exceeded_limit,
    too_much_of_two,
    contradicting_pool,
    other_system,
    another_pool_by_name,
    absent_class_of_claim,
    claim_without_class,
    larger_than_any,
    kept_from_its_team,
    memory_limit_beside_taint,
)
CASES_PER_FAULT = 6


def cases() -> list[Json]:
    """The corpus: every fault in several clusters, always the same."""
    made = []
    for fault in FAULTS:
        for number in range(CASES_PER_FAULT):
            case = Case(random.Random(f"{fault.__name__} {number}"))
            code, thing, mends = fault(case)
            made.append(
                {
                    "name": f"{fault.__name__}-{number}",
                    "pod": "default/app",
                    "code": code,
                    "object": thing,
                    "usable": [case.name] if case.meant else [],
                    "remedy": mends,
                    "unavailable": case.unavailable,
                    "manifests": case.manifests(),
                }
            )
    return made


def main() -> None:
    CORPUS.write_text("".join(json.dumps(case, sort_keys=True) + "\n" for case in cases()))


if __name__ == "__main__":
    main()
