"""States, codes, bounds, checks and safe linear algebra: what everything else stands on."""
