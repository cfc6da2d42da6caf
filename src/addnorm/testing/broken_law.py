"""The error of a mechanism that does not keep a law."""

from addnorm.errors import InputError


class BrokenLaw(InputError):
    """A mechanism does what no mechanism may do.

    Args:
        law: its name.
        finding: what happened, with numbers.
        advice: what to do.
        offender: what broke it.
    """

    def __init__(self, law: str, finding: str, advice: str, offender: str = "the model") -> None:
        super().__init__(f"{offender} breaks the law '{law}': {finding} {advice}")
        self.law, self.finding, self.advice = law, finding, advice
