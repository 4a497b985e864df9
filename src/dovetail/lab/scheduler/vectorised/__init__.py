"""The scheduler's filters and scores on arrays, for simulations; `schedule_one` is the reference it must agree
with.
"""
