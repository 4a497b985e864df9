"""AWS in the lab: moto over real HTTP, with what moto gets wrong for machines corrected in one place."""
