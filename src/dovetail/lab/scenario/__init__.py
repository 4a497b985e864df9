"""Scenarios in virtual time: files, random generators, the runner and its report."""
