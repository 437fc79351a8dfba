"""The engine: weights in; products out that are fast on this machine's CPU."""
