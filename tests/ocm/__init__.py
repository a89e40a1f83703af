"""A stand-in for Open Cluster Management's work agent: one managed cluster's end of the works.

It does what the agent does as its users see it (in its own words; the wording of conditions is the
agent's, since people look for it), and raises for what it does not know how to do.
"""
