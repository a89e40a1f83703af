"""`kube-sync topology`: what policies attach to and come to, from manifests."""
