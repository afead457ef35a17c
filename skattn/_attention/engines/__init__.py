"""Engines: how sums over keys are computed, one file each."""
