"""What keeps one topology in step with an API server, and calls functions about it.

Reflectors feed a `World`; a `LiveTopology` follows it; a `Controller` calls a `Reconcile` with all
events since the last one, which is a function or a `Workflow` of functions. A function that is
about some kinds or types of events alone looks at those that it is called with.
"""
