"""Lint: mistakes in manifests found before they cost anything. Pure: text in, findings out."""

from dovetail.model.lint.findings import CODES, Edit, Finding, Severity
from dovetail.model.lint.linter import lint
from dovetail.model.lint.source import Source

__all__ = ["CODES", "Edit", "Finding", "Severity", "Source", "lint"]
