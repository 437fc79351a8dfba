"""Learning: lessons to read, experiments to run, broken code to fix, cards; Chinese and English."""
