"""Tuning: a model in; a leaner or a tunable one out."""
