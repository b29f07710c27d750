import numpy as np

from pm_match.numerics.sines import sines


def test_agrees_with_numpy():
    rng = np.random.default_rng(0)
    for scale in (1e-8, 1.0, 100.0, 1e5, 1e9):
        angles = rng.normal(0.0, scale, (7, 50))
        sine, cosine = np.empty_like(angles), np.empty_like(angles)
        sines(angles, sine, cosine)
        np.testing.assert_allclose(sine, np.sin(angles), rtol=0.0, atol=3e-16)
        np.testing.assert_allclose(cosine, np.cos(angles), rtol=0.0, atol=3e-16)


def test_multiples_of_a_quarter_turn():
    angles = np.arange(-9, 10)[None] * (np.pi / 2.0)
    sine, cosine = np.empty_like(angles), np.empty_like(angles)
    sines(angles, sine, cosine)
    np.testing.assert_allclose(sine, np.sin(angles), rtol=0.0, atol=3e-16)
    np.testing.assert_allclose(cosine, np.cos(angles), rtol=0.0, atol=3e-16)


def test_what_is_not_finite_stays_so():
    angles = np.array([[0.0, np.inf, np.nan]])
    sine, cosine = np.empty_like(angles), np.empty_like(angles)
    sines(angles, sine, cosine)
    assert np.isnan(sine[0, 1:]).all()
    assert np.isnan(cosine[0, 1:]).all()
