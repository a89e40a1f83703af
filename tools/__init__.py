"""What the project needs beside itself: never imported by `kube_sync`."""
