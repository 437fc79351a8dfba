"""Routes: each file makes the routes of one screen from a Studio."""
