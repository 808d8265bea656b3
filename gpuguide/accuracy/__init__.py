"""How true: published measurements against estimates."""
