"""Changes the settings of an Ollama host and proves that the change took, or puts the host back."""

__version__ = "0.1.0"
