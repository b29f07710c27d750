"""Tables and views as users have them, checked."""
