"""Reads tables, model files and live prices into spec types."""
