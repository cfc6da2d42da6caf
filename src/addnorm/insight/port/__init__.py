"""Two implementations of one architecture, such as a port of a model and its original.

comparison   `addnorm.equal_to`: values, gradients, cached decoding and padding, and the first place that differs
result       what a comparison returns
gradients    gradients with respect to paired parameters
passes       a recorded pass of each, and the points at which both must have the same numbers
pairing      pairs of parameters by their values, row by row
"""

from addnorm.insight.port.comparison import equal_to
from addnorm.insight.port.result import PortComparison, PortDifference

__all__ = ["PortComparison", "PortDifference", "equal_to"]
