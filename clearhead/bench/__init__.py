"""Benches: ours beside its peers, the same work in turns, in one run; figures out."""
