"""Controller of one live topology: follows the API server and calls reconcile functions.

Reflectors fill a `World`; a `LiveTopology` is updated from it; a `Controller` calls a `Reconcile`
with all events since the last one, which is a function or a `Workflow` of functions. A function for
some kinds or types of events filters those that it is called with.
"""
