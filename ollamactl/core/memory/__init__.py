"""The memory model: cells, one small rule per architecture family, and what fits."""
