"""The parts of `clearhead look`, one file for each thing to look at."""
