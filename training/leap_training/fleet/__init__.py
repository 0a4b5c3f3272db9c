"""A synthetic fleet: completion events from physics, with the truth beside them."""
