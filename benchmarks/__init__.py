"""Measurements beside a peer or the bare round trip, as ratios of one run."""
