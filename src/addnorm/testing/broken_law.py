"""The error of a mechanism that does not keep a law."""

from addnorm.errors import InputError


class BrokenLaw(InputError):
    """A mechanism breaks a law that all mechanisms keep.

    Args:
        law: name of the law.
        finding: the observation, with numbers.
        advice: how to correct it.
        offender: the mechanism, for the message.

    Example:
        >>> try:
        ...     raise BrokenLaw("causal", "position 3 reads position 4.", "Mask later positions.", "residual 'mine'")
        ... except BrokenLaw as error:
        ...     print(error)
        residual 'mine' breaks the law 'causal': position 3 reads position 4. Mask later positions.
    """

    def __init__(self, law: str, finding: str, advice: str, offender: str = "the model") -> None:
        super().__init__(f"{offender} breaks the law '{law}': {finding} {advice}")
        self.law, self.finding, self.advice = law, finding, advice
