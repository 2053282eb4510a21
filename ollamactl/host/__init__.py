"""Effects, thin: the door for reading, NVML, the API of the server, the transaction, redaction."""
