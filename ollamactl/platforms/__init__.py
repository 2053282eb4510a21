"""What differs between systems: how a service is found, changed and restarted."""
