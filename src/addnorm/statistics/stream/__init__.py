"""An endless stream of proposals: the rule by which each is kept or discarded, and the state that follows from the runs."""

from addnorm.statistics.stream.rule import EFFECTS, FUTILE, StreamRule, log_e_value, log_ratio
from addnorm.statistics.stream.state import Proposal, StreamState

__all__ = ["EFFECTS", "FUTILE", "Proposal", "StreamRule", "StreamState", "log_e_value", "log_ratio"]
