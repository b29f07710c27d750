"""Figures people look at.

Every function returns the matplotlib Figure, whose axes are labelled with what they show
(`Axes.get_label`), so that a user can change or save it; those of one panel can draw it into axes
that they are given. All raise an ImportError if matplotlib is not installed. The objects' numbers
mean nothing by themselves: figures order them by cluster. Nothing is told by colour alone, and
colours differ in lightness, so that figures can be read in grey.
"""

from pm_match.plots.alluvial import plot_alluvial
from pm_match.plots.calibration import plot_calibration
from pm_match.plots.clusters import plot_clusters
from pm_match.plots.confusion import plot_confusion
from pm_match.plots.gallery import plot_gallery
from pm_match.plots.kernel import plot_kernel
from pm_match.plots.latent import plot_latent
from pm_match.plots.log_joint import plot_log_joint
from pm_match.plots.mapped_images import plot_mapped_images
from pm_match.plots.margin import plot_margin
from pm_match.plots.match_matrix import plot_match_matrix
from pm_match.plots.matched_data import plot_matched_data
from pm_match.plots.networks import plot_networks
from pm_match.plots.trace import plot_trace

__all__ = [
    "plot_alluvial",
    "plot_calibration",
    "plot_clusters",
    "plot_confusion",
    "plot_gallery",
    "plot_kernel",
    "plot_latent",
    "plot_log_joint",
    "plot_mapped_images",
    "plot_margin",
    "plot_match_matrix",
    "plot_matched_data",
    "plot_networks",
    "plot_trace",
]
