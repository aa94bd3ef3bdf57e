"""Our transactions in other frameworks; one module for each, loaded on use."""
