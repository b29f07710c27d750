"""From draws and a model to what they say of values that were not seen.

Where `matching` reads the draws alone, these read the model too: every draw is a point of it, and
says how objects of each cluster would look.
"""

from pm_match.prediction.assign import assign
from pm_match.prediction.impute import impute
from pm_match.prediction.predict import predict
from pm_match.prediction.translate import translate

__all__ = ["assign", "impute", "predict", "translate"]
