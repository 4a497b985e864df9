"""Admission policies in expressions: ValidatingAdmissionPolicy and MutatingAdmissionPolicy, with their bindings."""
