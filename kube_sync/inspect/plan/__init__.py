"""What an edit of policies or clusters would do to every workload, before it does it.

Above the replicator and the remediator and not beside them: what is predicted is what their own
code makes of a snapshot, without a server that serves.
"""
