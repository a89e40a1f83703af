"""What keeps one topology in step with an API server, and calls functions about it.

Reflectors feed a `World`; a `LiveTopology` follows it; a `Controller` calls a `Reconcile` with all
events since the last one, which is a function, a `Workflow` of functions, or a `Subscription`.
"""
