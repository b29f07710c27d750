"""From draws and a model to what they say of values that were not seen.

Where `matching` reads the draws alone, these read the model too: every draw is a point of it, and
says how objects of each cluster would look.
"""
