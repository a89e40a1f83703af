"""Policy sync: copies a hub's policies to the spokes on which their Gateways are placed."""
