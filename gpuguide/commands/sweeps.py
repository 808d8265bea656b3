def sweep() -> None:
    """To come."""
