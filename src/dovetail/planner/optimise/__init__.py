"""Tier 2: improve a packing within a budget of work.

`improve` runs the stages: `lower_bound` (what no plan can cost less than), `fill_existing` (pack existing nodes anew),
`relaxation` with `rounding` (LP, then whole nodes), `patterns` (cutting stock, for bursts of 200 pods and more), and
`lns` (large-neighbourhood search). `lp` is the interface to the solver, `worker` runs all of it in a child process.
"""
