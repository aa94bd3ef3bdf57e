"""Entries of the history: commits with a record, documents, pending marks and discarded files."""
