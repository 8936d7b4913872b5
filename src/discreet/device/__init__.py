"""What runs on a user's own device: encoders, their JSON, their own ε or ρ, and exact noise. numpy at most.

`encoder_from_json` reads what a server has published, `Reporter` fills it in, once.
"""

from discreet.device.announcements import Announcement, Entry, Forged
from discreet.device.bits import BitEncoder
from discreet.device.encoders import (
    EpisodeEncoder,
    GaussianEncoder,
    ItemEncoder,
    LaplaceEncoder,
    ReportEncoder,
    Reporter,
    SampledEncoder,
    encoder_from_json,
)
from discreet.device.losses import LossEncoder, LossTables
from discreet.device.sampler import Noise
from discreet.device.shares import ShareEncoder
from discreet.device.shuffled import ShuffledEncoder
from discreet.device.tables import Tables
from discreet.device.wire import Refused, Report

__all__ = [
    "Announcement",
    "BitEncoder",
    "Entry",
    "EpisodeEncoder",
    "Forged",
    "GaussianEncoder",
    "ItemEncoder",
    "LaplaceEncoder",
    "LossEncoder",
    "LossTables",
    "Noise",
    "Refused",
    "Report",
    "ReportEncoder",
    "Reporter",
    "SampledEncoder",
    "ShareEncoder",
    "ShuffledEncoder",
    "Tables",
    "encoder_from_json",
]
