"""Keeps linear algebra to one thread, in all processes that are started from here.

Tests run side by side, on matrices so small that it takes longer to wake a second thread.
"""

import os

from threadpoolctl import threadpool_limits

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# A plugin of pytest may have imported NumPy, which has read them.
threadpool_limits(1, user_api="blas")
