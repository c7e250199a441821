"""Find date words beside a date phrase that its reading does not cover. Such words make the reading unusable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.intent.time.chart_parser import Chart
from agent.intent.time.lexer import ChartItem, DateToken, load_date_words

LINKING_CATEGORIES = frozenset(["skipped", "of", "to"])
"""Categories of words that join date phrases and mean no date by themselves."""
_STRONG = ("YEAR", "DUR", "R", "P", "X", "WDAY", "PT", "OTHERUNIT", "SOMEDUR", "DECADE")
_OPENING = ("zhbefore", "zhafter", "zhsince", "zhupto", "onwards", "andbefore", "ago", "after_next", "before_last")
"""Words after a period that open one end of the period or move it: "onwards", "ago"."""
_NARROWING = ("PART", "EDGE", "later", "earlier", "rest", "ROLL")
"""Words before a period that select a part of the period, or extend it: "early", "rest", "the past"."""
_COMPARED = ("over", "under")
"""Words before a Chinese period that belong to a duration: 超过[2019年] ("over 2019")."""
_LEADING = (*_NARROWING, *_COMPARED)
_FARTHEST = 6
_MOST_WORDS = 3
"""Maximum words for an event: of "the merger" in "two weeks after the merger"."""


@dataclass(frozen=True, slots=True)
class DateRun:
    """The tokens [first, last) of a text that are a run of date words, with all readings of the run in `chart`."""

    text: str
    tokens: Sequence[DateToken]
    first: int
    last: int
    chart: Chart

    def items_at(self, place: int, *categories: str) -> list[ChartItem]:
        """Return the readings of these categories that begin at the token with index `place`."""
        here = self.chart[place - self.first] if self.first <= place <= self.last else {}
        return [item for category in categories for item in here.get(category, ())]

    def has_category(self, place: int, *categories: str) -> bool:
        """Return whether a phrase of these categories from the word lists begins at a token of the run."""
        return self.first <= place < self.last and any(one.category in categories for one in self.tokens[place].items)

    def has_uncovered_words(self, item: ChartItem, stated: Mapping[int, int]) -> bool:
        """Return whether date words beside an item, but not covered by it, may change the meaning of the item.

        Args:
            stated: for each date phrase of the run, the index after its last token, by the index of its first token.
        """
        return (
            self._is_shifted(item)
            or self._is_of_event(item)
            or self._is_left_after(item)
            or self._is_left_of_list(item, stated)
            or self._is_left_before(item, stated)
        )

    def _is_shifted(self, item: ChartItem) -> bool:
        """Return whether words after an item change its time: "2019 onwards", "Friday after next"."""
        place = item.end
        if self.has_category(item.start, "span", "from") and self.has_category(place, "to"):
            return True  # "from 2005 to the release"
        if self.has_category(place, "to") and any(token.items for token in self.tokens[place + 1 : place + 4]):
            return True  # "1 Dec to end Feb"
        if self.has_category(place, "ri", "yue"):
            return True  # 5月[32号] ("32 May"), 5月6[月]
        if any(one.end - one.start > 1 or not self.tokens[place].is_chinese for one in self.items_at(place, *_OPENING)):
            return True
        if any(self.tokens[place].text[-1] in "初底末" for _ in self.items_at(place, "AFTERPART")):
            return True
        return (
            self.has_category(place, "UNIT", "UNITS")
            and not self.tokens[place].is_chinese
            and not self.items_at(place, "T")
        )

    def _ends_with_ordinal(self, end: int) -> bool:
        """Return whether an ordinal begins at the last token before `end` ("fourth"), or at the one before ("4", "th").

        Where the ordinal ends is not tested.
        """
        return self.has_category(end - 1, "O", "OONES") or self.has_category(end - 2, "O")

    def _is_of_event(self, item: ChartItem) -> bool:
        """Return whether an item follows an event from which time is counted: "the month of the merger [in 2019]"."""
        place = item.start
        token, before = self.tokens[place], self.tokens[max(place - 1, 0)]
        if token.text in ("前", "后"):
            return (
                self.has_category(place, "ROLL")
                and before.end == token.start
                and before.is_chinese
                and not before.items
            )
        words = 0
        while (
            place and not self.tokens[place - 1].items and self.tokens[place - 1].text.isalpha() and words < _MOST_WORDS
        ):
            place, words = place - 1, words + 1
        while place and words and self._has_any_category(place - 1, "skipped"):
            place -= 1
        is_counted = words and self._has_any_category(place - 1, "of", "counted_from", "counted_before")
        return (
            bool(is_counted)
            and self._has_any_category(place - 2, "UNIT", "UNITS")
            and not self._has_any_category(place - 3, "asked")
        )

    def _has_any_category(self, place: int, *categories: str) -> bool:
        """Return whether a token, in the run or before it, has one of these categories."""
        return place >= 0 and any(one.category in categories for one in self.tokens[place].items)

    def _is_left_after(self, item: ChartItem) -> bool:
        """Return whether an uncovered number or date follows: "on Friday [the 15]", not "in 2019 the 3 best"."""
        place = item.end
        may_be_day = True
        for _ in range(3):
            is_number = may_be_day and self._is_number(place)
            if is_number or self._is_any_strong(place):
                return not self.items_at(place, "T")
            light = [one.end for one in self.items_at(place, *LINKING_CATEGORIES)]
            if not light:
                return False
            may_be_day = not self.has_category(place, "skipped") or self.has_category(item.end - 1, "WDAY")
            place = light[0]
        return False

    def _is_left_of_list(self, item: ChartItem, stated: Mapping[int, int]) -> bool:
        """Return whether an unread date is listed after an item: "Monday or [the weekend]", "3 May and [the 4th]"."""
        place = item.end
        if not self.has_category(place, "and", "or", "comma"):
            return False
        is_comma = self.has_category(place, "comma")
        while self.has_category(place, "and", "or", "comma", "skipped", "on", "link"):
            place += 1
            if place in stated:
                return self._is_day_alone(place, stated[place])
        last = self.tokens[item.end - 1].text
        is_short = self.has_category(item.end - 1, "NUM", "O", "di") and len(last) < 3
        ends_with_day = is_short or last in ("st", "nd", "rd", "th")
        if ends_with_day and self.items_at(place, "D") and not self.tokens[place].is_chinese:
            return True
        return not is_comma and (self._is_any_strong(place) or self.has_category(place, "UNIT", "UNITS", "OTHERUNIT"))

    def _is_day_alone(self, start: int, end: int) -> bool:
        """Return whether the tokens [start, end) are a day without the name of its month: "the 4th"."""
        first = start + self.has_category(start, "skipped", "on")
        return any(one.end == end for one in self.items_at(first + self.has_category(first, "skipped"), "O"))

    def _is_left_before(self, item: ChartItem, stated: Mapping[int, int]) -> bool:
        """Return whether uncovered date words before an item belong to it: "[Mon, Wed and] Fri last week"."""
        end = item.start
        listed = end - 1 if self.has_category(end - 1, "and", "or", "comma") else end
        if listed < end and self._is_rest_of_list(listed, stated):
            return True  # "Mon, Wed and [Fri last week]"
        if self.has_category(end - 1, "of", "skipped"):
            end -= 1
        if any(one.text == "between" for one in self.tokens[max(self.first, end - _FARTHEST) : end]):
            return True  # "between now and [the end of July]"
        if self.has_category(end - 1, "between", "to"):
            return self.tokens[end - 1].text != "在"
        starts = range(max(self.first, end - _FARTHEST), end)
        wanted = self._wanted_before(item)
        # "end of" may include the first word of the item, "of".
        ends = (end, end + 1) if self.has_category(item.start, "of") else (end,)
        found = (
            (one, self.tokens[start].is_chinese) for start in starts for one in self.items_at(start, *wanted, *_LEADING)
        )
        return any(
            (one.end == end and one.category in wanted and self._is_strong(one))
            or (one.end in ends and one.category in _NARROWING and not is_chinese)
            or (one.end == end and one.category in _COMPARED and is_chinese)
            for one, is_chinese in found
        )

    def _is_rest_of_list(self, end: int, stated: Mapping[int, int]) -> bool:
        """Return whether a list that ends before the token `end` ends with an unread date, or a day without a month."""
        if end in stated.values():
            return any(last == end and self._is_day_alone(start, last) for start, last in stated.items())
        return self.has_category(end - 1, "WDAY", "PART", "EDGE") or self._ends_with_ordinal(end)

    def _wanted_before(self, item: ChartItem) -> tuple[str, ...]:
        """Return the categories of words that belong to an item directly after them; fewer if it has a preposition."""
        if self.has_category(item.start, "REL"):
            return ("N", "O", "YEAR", "DUR", "P", "WDAY", "UNIT", "UNITS")
        if self.tokens[item.start].text == "of":
            return ("UNIT", "UNITS", "WDAY", "O", "OTHERUNIT", "NS", "NRUN")
        if self.has_category(item.start, "to"):
            return ("N", "O", "DUR", "P")
        if self.has_category(item.start, "before", "after", "since", "begun_in"):
            return ("DUR", "UNIT", "UNITS", "OTHERUNIT", "SOMEDUR", "WDAY")
        if self.has_category(item.start, "on", "from"):
            return ("DUR",)
        is_led = self.has_category(item.start, "in", "span", "link")
        number = ("N", "YEAR") if self.has_category(item.start, "MONTHNAME") else ()
        return ("WDAY", "OTHERUNIT") if is_led else (*number, "DUR", "P", "WDAY", "UNIT", "UNITS", "OTHERUNIT")

    def _is_number(self, place: int) -> bool:
        """Return whether a token is a number, or begins with a digit like "2018/19"."""
        spelled = self.tokens[place].text if place < len(self.tokens) else ""
        return spelled[:1].isdigit() or (bool(self.items_at(place, "N")) and not self.tokens[place].is_chinese)

    def _is_any_strong(self, place: int) -> bool:
        """Return whether an item that begins at a token surely belongs to a date."""
        return any(self._is_strong(one) for one in self.items_at(place, *_STRONG))

    def _is_strong(self, item: ChartItem) -> bool:
        """Return whether an item surely belongs to a date.

        A single Chinese character does not, nor a month's name that is also a verb, nor a unit in "which month".
        """
        word = self.tokens[item.start]
        if item.category in ("UNIT", "UNITS") and self.has_category(item.start - 1, "asked"):
            return False
        if item.end - item.start > 1:
            return True
        return not word.is_chinese and word.text not in load_date_words().ambiguous_months
