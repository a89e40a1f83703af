"""Whether accidents delete Applications: the same faults for three ways to choose clusters.

`fleet` has the objects, `scene` the servers, `faults` what goes wrong, `table` the counts.
"""
