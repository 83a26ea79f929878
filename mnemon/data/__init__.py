"""Data: episodes drawn from known densities."""
