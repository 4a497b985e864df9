"""The fleet in a terminal: the read model of `dovetail.view` as lines of text, once or live. It writes nothing.

`figures`, `tables` and `text` are pure and need no terminal; only `app` and `rows` import Textual.
"""
