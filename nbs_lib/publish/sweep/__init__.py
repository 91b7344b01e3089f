"""Sweeps: a notebook run over a grid of parameters, on one machine or a cluster, and what comes of it."""
