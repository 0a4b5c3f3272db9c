"""Decisions: what the predictor answered, as lines of a log."""
