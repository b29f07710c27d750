"""Factor models: views that are linear in free vectors."""
