def calibrate() -> None:
    """To come."""
