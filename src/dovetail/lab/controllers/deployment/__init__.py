"""Deployment: rollout, revisions, status and the controller."""
