"""Time zones, by name of the IANA database."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def check_time_zone(name: str) -> str:
    """Return the name unchanged.

    Raises:
        ValueError: there is no such time zone.
    """
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'there is no time zone "{name}"; names look like Asia/Shanghai or Europe/Berlin') from None
    return name
