"""Tier 2: improve a packing within a budget of work.

`improve` runs the stages: `lower_bound` (the least cost of any plan), `fill_existing` (repack existing nodes),
`relaxation` with `rounding` (LP, then integer nodes), `column_generation` (cutting stock of few pod sizes), `patterns`
(cutting stock, for bursts of 200 pods and more), and `lns` (large-neighbourhood search). `lp` is the interface to the
solver, `worker` runs all of it in a child process.
"""
