"""What runs on a user's own device: encoders, their JSON, their own ε or ρ, and exact noise. numpy at most.

`encoder_from_json` reads what a server has published, `Reporter` fills it in, once.
"""

from discreet.device.bits import BitEncoder
from discreet.device.encoders import (
    GaussianEncoder,
    LaplaceEncoder,
    ReportEncoder,
    Reporter,
    SampledEncoder,
    encoder_from_json,
)
from discreet.device.losses import LossEncoder, LossTables
from discreet.device.sampler import Noise
from discreet.device.tables import Tables
from discreet.device.wire import Refused, Report

__all__ = [
    "BitEncoder",
    "GaussianEncoder",
    "LaplaceEncoder",
    "LossEncoder",
    "LossTables",
    "Noise",
    "Refused",
    "Report",
    "ReportEncoder",
    "Reporter",
    "SampledEncoder",
    "Tables",
    "encoder_from_json",
]
