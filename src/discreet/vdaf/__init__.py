"""Histograms from verified secret shares: Prio3Histogram of draft-irtf-cfrg-vdaf-20, for devices and servers.

Needs pycryptodome (`pip install 'discreet[live]'`). Devices, which only shard, load neither numpy nor numba.
"""

from discreet.vdaf.flp import InvalidReport, best_chunk_length
from discreet.vdaf.prio3 import Prio3Histogram, VerifyState

__all__ = ["InvalidReport", "Prio3Histogram", "VerifyState", "best_chunk_length"]
