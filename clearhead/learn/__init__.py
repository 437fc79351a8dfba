"""Learning: lessons to read, experiments to run, broken code to mend, cards; Chinese and English."""
