"""Words: one file per language with the same keys."""
