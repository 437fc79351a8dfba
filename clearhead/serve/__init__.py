"""Serving: models and runs of this machine in; the studio page and its API out, to this machine alone."""
