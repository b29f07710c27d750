"""One file a study: each reproduces a result, prints it and draws it."""
