"""Optimisers: plain NumPy, whatever computes the losses."""
