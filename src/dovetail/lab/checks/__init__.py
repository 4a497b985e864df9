"""Invariants that every scenario and every test of a running lab ends with."""
