"""The line of the model, and the module, from which an operation of an exported graph comes."""

import re
import sys
from traceback import FrameSummary, StackSummary
from types import CodeType

from torch import fx

from addnorm.redundancy.execution.checks import is_of_model


class PlaceInModel:
    """Stands for torch's `CapturedTraceback` in an export: gives, of each stack, the line that `source_of` reads."""

    # Naming and printing all frames took a fifth of an export, and more below a deep stack.

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost

    def extract(self) -> "PlaceInModel":
        """Return itself, as the tracer asks."""
        return self

    def summary(self) -> StackSummary:
        """Return the innermost line of the model in the running stack, if there is one."""
        frame = sys._getframe(1)
        # Below `outermost` there are the model and torch alone; above it stands whoever asked for the export.
        while frame.f_back is not None and frame.f_code is not self._outermost:
            if is_of_model(file := frame.f_code.co_filename):
                # The tracer keeps frames of this name alone. Without the text of the line, no file is read.
                named = FrameSummary(file, frame.f_lineno, "forward", lookup_line=False, line="")
                return StackSummary.from_list([named])
            frame = frame.f_back
        return StackSummary()


def source_of(node: fx.Node) -> tuple[str, str]:
    """Return the path of the module that called an operation, and file:line of the innermost call outside torch."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str([*stack.values()][-1][0]) if stack else ""
    place = re.match(r'File "(.*)", line (\d+)', node.stack_trace or "")
    return path.partition(".")[2], f"{place[1]}:{place[2]}" if place else ""
