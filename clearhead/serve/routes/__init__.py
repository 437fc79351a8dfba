"""Routes: each module defines the routes of one screen."""
