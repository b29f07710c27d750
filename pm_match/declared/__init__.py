"""A kind: any likelihood over an assignment, its parameters not integrated out."""
