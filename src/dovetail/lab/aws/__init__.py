"""AWS in the lab: moto over real HTTP, with what moto gets wrong for instances corrected in one place."""
