"""How much: pure, vectorised formulas for memory and time. Knows no file, no price and no slider."""
