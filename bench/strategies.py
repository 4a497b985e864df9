"""Which tier-1 strategies earn their time: how often each alone gives the best packing of a random problem.

    python -m bench.strategies [COUNT]

COUNT problems of `bench.scenarios`, as many of each family. The work is bounded by the problems, so the counts do not
depend on the computer. A strategy that never wins alone could go.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

from msgspec.structs import asdict

from bench.plan_hashes import seeds, snapshot_of
from dovetail.planner.baseline.to_packing import Simulations, baseline_of
from dovetail.planner.packing.pack import Packing, few
from dovetail.planner.packing.run import PackingRun, WorkMeter
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import _portfolio, _strategies

#: Relative difference below which two weighted costs are equal.
_SAME_COST = 1e-9


def winners(problem: Problem) -> list[str]:
    """The strategies whose packings are the best of the portfolio."""
    run = PackingRun(WorkMeter(), baseline_of(problem, Simulations(problem).finish()))
    packings = _portfolio(problem, run)
    best = min(packing.score for packing in packings)

    def is_best(packing: Packing) -> bool:
        score = packing.score
        return score[:-1] == best[:-1] and score.weighted_cost <= best.weighted_cost * (1 + _SAME_COST)

    named = zip(_names(problem), packings, strict=False)
    return [name for name, packing in named if is_best(packing)]


def _names(problem: Problem) -> Iterator[str]:
    """The names of the portfolio's packings, in its order: the strategy's parameters that are not the default."""
    default = asdict(Strategy())
    for strategy in _strategies(problem):
        changed = {name: value for name, value in asdict(strategy).items() if value != default[name]}
        yield ", ".join(f"{name}={value}" for name, value in changed.items()) or "default"
    if problem.weighted:
        yield "pessimistic limits"
    yield "all preferences ignored"
    yield "preferences restored class by class"


def main(count: int) -> None:
    alone, compared = Counter[str](), 0
    for seed in seeds(count):
        problem = Problem(snapshot_of(seed))
        if not few(problem):
            continue
        compared += 1
        best = winners(problem)
        if len(best) == 1:
            alone[best[0]] += 1
    print(f"{compared} problems; the best packing came from one strategy alone:")
    for name, wins in alone.most_common():
        print(f"{wins:>5}  {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=160, help="how many problems")
    main(parser.parse_args().count)
