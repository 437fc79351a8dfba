"""The lens: specs, models and what happens inside them in; words, numbers and pictures out."""
