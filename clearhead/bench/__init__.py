"""Benchmarks: Clearhead beside other libraries, the same work in turns, in one run."""
