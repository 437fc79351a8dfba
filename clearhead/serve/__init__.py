"""Serving: models and runs of this machine in, the studio's page and its API out. Local unless a key says more."""
