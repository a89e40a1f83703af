"""Why an object is where it is, why not elsewhere, and what would change that.

Above planning and not in it: it asks the worlds that a plan compares, but about one object, and at
length. It writes nothing, and the OPA that serves is not asked.
"""
