"""Policies of a hub, brought to the spokes that their Gateways are placed on."""
