"""Text to facts: one module per source."""
