"""The front door: people's own data, looked at, matched, and answered in words."""
