"""What the data say: one family of evidence a file, and the protocol they share.

Arrays in, arrays out: nothing here knows of PyMC.
"""
