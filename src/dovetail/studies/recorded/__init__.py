"""Recordings played in the lab, in virtual time: as they were, or with another NodePool, autoscaler or fault."""
