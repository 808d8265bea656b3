"""How it looks: a decision and a language in, figures, tables and sentences out."""
