"""Retention and garbage collection: what is forgotten, and what is deleted."""
