"""The page of `dovetail dashboard`: server-rendered, kept up by server-sent events, and it writes nothing."""
