"""Admission webhooks: which of them a request concerns, what they are sent, and what becomes of their answers."""
