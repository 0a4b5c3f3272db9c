"""Readers of model definitions: what `leap_features.architecture` summarises by."""
