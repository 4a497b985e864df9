"""What ten thousand pods do alike, done once by the API server of a simulation and repeated in its place.

`transport` is the transport; the other modules are the writes that it carries out itself, by their kind.
"""
