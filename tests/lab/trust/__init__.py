"""Helpers of the tests that kill, starve and disturb a change of a host."""
