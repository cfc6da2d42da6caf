"""Number formats of pages: few digits, and a dash for None."""

import math
import time
from collections.abc import Sequence

NONE = "–"


def fixed(value: float | int | None, digits: int) -> str:
    """`2.5199`; a real minus sign."""
    return NONE if value is None else f"{value:.{digits}f}".replace("-", "−")


def signed(value: float | int | None, digits: int) -> str:
    """`+1.2`, `−0.4`."""
    return NONE if value is None else f"{value:+.{digits}f}".replace("-", "−")


def percent(share: float | int | None, digits: int = 2) -> str:
    """`50.21 %` for 0.5021."""
    return NONE if share is None else f"{100 * share:.{digits}f} %"


def quantity(number: float | int | None) -> str:
    """`512`, `51.7 k`, `2.31 M`: three significant digits."""
    if number is None:
        return NONE
    for factor, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # Of the rounded number: 999,600 has three digits as 1 M, and as 1000 k it would be printed with an exponent.
        if abs(rounded := float(f"{number:.3g}")) >= factor:
            return f"{rounded / factor:.3g} {unit}"
    return f"{number:.3g}"


def times(number: float | int) -> str:
    """`0.0054`, `2.5`, `120`: two significant digits, without an exponent from 0.0001 on."""
    return f"{number:.0f}" if number >= 99.5 else f"{number:.2g}"


def size(count: float | int | None) -> str:
    """Bytes, in powers of 1024: `400 MiB`."""
    if count is None:
        return NONE
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{amount:.0f} {unit}" if (amount := count / 1024**power) >= 999.5 else f"{amount:.3g} {unit}"
    return f"{count:.0f} B"


def moment(seconds: float | int | None) -> str:
    """`2026-07-26 11:33:40 UTC+8`, by this machine's clock and time zone."""
    if seconds is None:
        return NONE
    here = time.localtime(seconds)
    sign, (hours, minutes) = "+" if here.tm_gmtoff >= 0 else "−", divmod(abs(here.tm_gmtoff) // 60, 60)
    zone = f"{sign}{hours}{f':{minutes:02}' if minutes else ''}" if here.tm_gmtoff else ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', here)} UTC{zone}"


def iso(seconds: float | int) -> str:
    """The same moment for programs: `2026-07-26T03:33:40Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def duration(seconds: float | int | None) -> tuple[str, dict[str, int]]:
    """Key of the phrase for a length of time, and what to fill in."""
    if seconds is None:
        return "time.unknown", {}
    whole = max(0, round(seconds))
    if whole < 100:
        return "time.seconds", {"s": whole}
    if whole < 6000:
        return "time.minutes", {"m": round(whole / 60)}
    if whole < 48 * 3600:
        return "time.hours", {"h": whole // 3600, "m": whole % 3600 // 60}
    return "time.days", {"d": round(whole / 86400)}


def interval(ends: Sequence[float | int] | None, digits: int) -> str:
    """`[2.4000, 2.6000]`."""
    return NONE if ends is None else f"[{fixed(ends[0], digits)}, {fixed(ends[1], digits)}]"


def spread(count: int, most: int) -> list[int]:
    """Up to `most` of the places from 0 to `count - 1`, evenly spread, the first and the last among them."""
    shown = min(count, most)
    return list(dict.fromkeys(round(k * (count - 1) / max(1, shown - 1)) for k in range(shown)))


def trimmed(value: float, digits: int) -> str:
    """`fixed` without zeros at the end: `2.5`, `3`."""
    return fixed(value, digits).rstrip("0").rstrip(".")


def mean(values: Sequence[float | int]) -> float:
    """Mean of at least one value."""
    return float(sum(values) / len(values))


def mean_of_known(values: Sequence[float | int | None]) -> float | None:
    """Mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def ticks(low: float | int, high: float | int, count: int) -> list[float]:
    """Round numbers between two others, about `count` of them."""
    if not high > low:
        return [float(low)]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]
