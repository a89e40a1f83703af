"""`kube-sync topology`: the topology and the effective policies of manifests."""
