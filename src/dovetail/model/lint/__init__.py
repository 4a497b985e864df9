"""Lint: mistakes in manifests found before they cost anything. Pure: text in, findings out."""

from dovetail.model.lint.findings import CODES, Edit, LintFinding, Severity
from dovetail.model.lint.linter import lint
from dovetail.model.lint.source import SourceFile

__all__ = ["CODES", "Edit", "LintFinding", "Severity", "SourceFile", "lint"]
