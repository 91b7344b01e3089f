"""One thread for the optimisers of free features: on tensors so small, threads spend their time waiting for each other.

Two threads on two idle cores take four times as long as one, and forty times on a machine that has other work.
"""

import scipy.optimize  # noqa: F401  (so that its BLAS is loaded when the controller looks for libraries)
import torch  # noqa: F401  (and torch's OpenMP)
from threadpoolctl import ThreadpoolController

one_thread = ThreadpoolController().wrap(limits=1)
"""Decorator: run the function with one BLAS and one OpenMP thread; how many there were before comes back after it."""
