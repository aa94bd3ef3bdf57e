"""What the sandboxes that run commands share: limits, capture of output, probes."""
