"""What is asked: frozen types that hold no arithmetic beyond their own invariants."""
