"""`kube-sync why` and `why-not`: explains a placement, and finds changes that would alter it.

Layered above planning: it queries the worlds that a plan compares, but about one object, and in
detail. It writes nothing, and the serving OPA gets no query.
"""
