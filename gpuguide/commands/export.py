def export() -> None:
    """To come."""
