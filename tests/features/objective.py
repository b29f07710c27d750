"""The objective of projections, as other optimisers want it."""


def depth(objective):
    """-L and its gradient as a function of all numbers of W, in the form of SciPy's optimisers."""

    def function(flat):
        objective.w[:] = flat.reshape(objective.w.shape)
        value, gradient = objective.gradient()
        return -value, -gradient.ravel()

    return function
