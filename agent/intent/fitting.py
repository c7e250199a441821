"""What the amounts of a comparison may be among the numbers of a field: in its unit, inside its range."""

from collections.abc import Sequence

from agent.intent.bounds import Comparison
from agent.intent.columns import Columns
from agent.intent.numbers import Measure, Unit
from agent.intent.vocabulary import concepts_of


def possible(columns: Columns, one: Comparison, name: str) -> list[tuple[float, ...]]:
    """What the amounts may be in the field's unit; none where the field holds no amounts of their units."""
    measure = columns.measures[name]
    found: list[tuple[float, ...]] = []
    for amount in one.amounts:
        values = {
            reading.value * scale
            for reading in amount.readings
            if (scale := _scale(columns, measure, name, reading.unit)) is not None
        }
        if not values:
            return []
        found.append(tuple(sorted(values)))
    return found


def _scale(columns: Columns, measure: Measure, name: str, unit: Unit | None) -> float | None:
    known = columns.vocabulary.catalogue.fields[name]
    if unit is not None and unit.kind == "share" and not measure.units and isinstance(known.high, int | float):
        return 0.01 if known.high <= 1 else 1.0 if known.high <= 100 else None
    return measure.scale(unit, money="money" in concepts_of(name))


def chosen(columns: Columns, one: Comparison, name: str) -> tuple[tuple[float, ...], Unit | None] | None:
    """The field's numbers for the amounts, and the unit that they are said in.

    None where it is not clear which of several readings is meant, none or some of them being among the field's numbers.
    """
    low, high = field_range(columns, name)
    numbers: list[float] = []
    for values in possible(columns, one, name):
        inside = [value for value in values if low is not None and high is not None and low <= value <= high]
        if len(values) > 1 and len(inside) != 1:
            return None
        numbers.append(inside[0] if len(values) > 1 else values[0])
    if one.low is not None and one.high is not None and numbers[0] > numbers[1]:
        return None
    units = columns.measures[name].units
    if not one.kinds and len(units) > len({unit.kind for unit in units}):
        return None  # 300 of what, where some are in MB and some in kB?
    return tuple(numbers), next((unit for unit in units if unit.kind in one.kinds), None)


def field_range(columns: Columns, name: str) -> tuple[float | None, float | None]:
    """The least and the largest number of a field."""
    if numbers := columns.measures[name].numbers:
        return min(numbers), max(numbers)
    known = columns.vocabulary.catalogue.fields[name]
    if isinstance(known.low, int | float) and isinstance(known.high, int | float):
        return known.low, known.high
    return None, None


def is_broken(columns: Columns, name: str, numbers: Sequence[Sequence[float]]) -> bool:
    """Whether broken numbers are compared with a field that holds nothing but whole ones, as far as is known."""
    (low, high), texts = field_range(columns, name), columns.measures[name].texts
    known = columns.measures[name].numbers if texts else [one for one in (low, high) if one is not None]
    is_whole = all(one == int(one) for one in known)
    if not texts and low is not None and high is not None:
        is_whole = is_whole and columns.vocabulary.catalogue.fields[name].distinct <= high - low + 1
    return is_whole and any(one != int(one) for values in numbers for one in values)


def is_inside(columns: Columns, name: str, numbers: Sequence[Sequence[float]]) -> bool:
    low, high = field_range(columns, name)
    return low is not None and high is not None and any(low <= one <= high for values in numbers for one in values)
