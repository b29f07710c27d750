"""Sine and cosine of many angles at once, to the last bit or so, in vector instructions.

NumPy and the C library take them one by one, which costs ten times as much and more than all the
rest of a random Fourier feature. The polynomials are those of fdlibm (Sun Microsystems 1993),
after a reduction to the nearest multiple of a quarter turn (Cody & Waite 1980).
"""

from math import cos, floor, sin

from pm_match.numerics.kernels import entry

# A quarter turn, split so that its multiples below are exact in the first part.
_QUARTER = 1.5707963267341256
_REST = 6.077100506506192e-11
_PER_QUARTER = 0.6366197723675814
_EXACT = 1e6


@entry
def sines(angles, sine, cosine):
    """Fill `sine` and `cosine` with those of `angles`; all are (N, M) float64 arrays.

    No two of them the same: writing over what is read costs the vector instructions.
    """
    for i in range(angles.shape[0]):
        largest = 0.0
        for j in range(angles.shape[1]):
            largest = max(largest, abs(angles[i, j]))
        if not largest < _EXACT:
            for j in range(angles.shape[1]):
                sine[i, j] = sin(angles[i, j])
                cosine[i, j] = cos(angles[i, j])
            continue
        for j in range(angles.shape[1]):
            turns = floor(angles[i, j] * _PER_QUARTER + 0.5)
            x = angles[i, j] - turns * _QUARTER - turns * _REST
            z = x * x
            s = -2.50507602534068634195e-08 + z * 1.58969099521155010221e-10
            s = 8.33333333332248946124e-03 + z * (
                -1.98412698298579493134e-04 + z * (2.75573137070700676789e-06 + z * s)
            )
            s = x + x * z * (-1.66666666666666324348e-01 + z * s)
            c = 2.08757232129817482790e-09 - z * 1.13596475577881948265e-11
            c = -1.38888888888741095749e-03 + z * (
                2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07 + z * c)
            )
            c = 1.0 - 0.5 * z + z * z * (4.16666666666666019037e-02 + z * c)
            quarter = int(turns) & 3
            one, other = (c, s) if quarter & 1 else (s, c)
            sine[i, j] = -one if quarter & 2 else one
            cosine[i, j] = -other if (quarter + 1) & 2 else other
