"""Which: from estimates to an ordered list of offers."""
