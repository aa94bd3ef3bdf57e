"""What the commands print and ask: tables, diffs, progress, questions."""
