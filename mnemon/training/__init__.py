"""Training: a plain loop on Lightning Fabric, its configuration, checkpoints and metrics."""
