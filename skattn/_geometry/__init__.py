"""Geometry: how rows become keys, in coordinates in which kernels see Euclidean distances."""
