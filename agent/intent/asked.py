"""Which fields a question asks about: what is counted, added up, grouped by, shown."""

import re
from datetime import date

from agent.intent import lexicon, wording
from agent.intent.filters import Json
from agent.intent.found import Found, date_field
from agent.intent.lexicon import ORGANISATIONS
from agent.intent.quantities import is_key
from agent.intent.vocabulary import Role, concepts_of

_GROUPING: tuple[Role, ...] = ("label", "tag", "person", "version", "boolean", "language")
_OF_A_COUNT = frozenset("of ended are were is was did have has got carry".split())
_BEFORE_COUNTED = frozenset("more different new other total the all published created - open".split())
_POLITE = frozenset("pls plz please thx thanks".split())
_BEFORE_VALUES = frozenset("different distinct unique the".split())
_PERIODS_OF_MONTHS = {12: "year", 6: "half", 3: "quarter", 1: "month"}
_YEAR = re.compile(r"\d{4}|\byear\b|年", re.IGNORECASE)
_COUNTED_ZH = re.compile("篇|份|件|起")


def fields_named(found: Found, *roles: Role, start: int = 0, end: int | None = None) -> tuple[str, ...]:
    """Fields of these roles that words of the question point at, between two characters; values point at none."""
    sentence = found.sentence
    end = len(sentence.text) if end is None else end
    names: list[str] = []
    for index, fields in sentence.cued:
        if start <= sentence.tokens[index].start < end and sentence.mention_at(index) is None:
            names += [name for name in fields if sentence.vocabulary.roles.get(name) in roles]
    return tuple(dict.fromkeys(names))


def unconstrained(found: Found, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the fields that no named value constrains."""
    constrained = {one.field for one in found.constraints}
    return tuple(name for name in fields if name not in constrained)


def date_asked(found: Found) -> str | None:
    """The date field that documents are ordered or grouped by."""
    fields = found.sentence.vocabulary.of_role("date")
    if found.dates:
        return date_field(found.sentence, found.dates[0])
    near = [name for _, named in found.sentence.cued for name in named if name in fields]
    return next(iter((*near, *fields)), None)


def number_asked(found: Found) -> str | None:
    """The number that is summed or compared: a field, or the length of a list ("most authors")."""
    fields = [name for name in fields_named(found, "number") if not is_key(found.sentence.vocabulary, name)]
    if fields:
        return fields[0]
    known = found.sentence.vocabulary.catalogue.fields
    named = fields_named(found, "person", "tag")
    lists = [name for name in (*unconstrained(found, named), *named) if known[name].field.type == "list"]
    return f"len({lists[0]})" if lists and wording.NUMBER_OF.search(found.sentence.text) else None


def is_length(number: str) -> bool:
    """Whether it is the length of a list and no field."""
    return number.startswith("len")


def group_asked(found: Found) -> str | None:
    """What is grouped by, where the question says so: "per year", "by department", 按地区."""
    text, dates = found.sentence.text, date_asked(found)
    periodical = wording.PERIODICAL.search(text)
    if periodical is not None and dates:
        return f"{wording.PERIODS[periodical[1].casefold()]}({dates})"
    for match in (*wording.BY.finditer(text), *wording.WHICH_VALUES.finditer(text)):
        group = match.lastgroup or "what"
        period = _period(match[group] or "")
        if period and dates:
            return f"{period}({dates})"
        fields = fields_named(found, *_GROUPING, start=match.start(group), end=match.end())
        # "by Guido" states who, not how to group.
        is_value = any(mention.start == match.start(group) for mention in found.sentence.mentions)
        # "by author Ann Lee" as well.
        behind = found.sentence.index_from(match.start(group)) + 1
        token = found.sentence.token(behind)
        is_value = is_value or found.sentence.mention_at(behind) is not None or (token is not None and token.is_capital)
        if fields and not is_value:
            return fields[0]
    return None


def _period(phrase: str) -> str | None:
    """ "years since 2020" is by year, 年份 as well."""
    words = phrase.casefold().strip()
    first = words.split()[0].rstrip("s") if words.isascii() and words else words
    chinese = (period for word, period in wording.PERIODS_ZH.items() if words.startswith(word))
    return wording.PERIODS.get(first) or next(chinese, None)


def several_asked(found: Found) -> tuple[str, tuple[object, ...]] | None:
    """A field that the question names two or more values of, to be told apart; years count as well."""
    roles = found.sentence.vocabulary.roles
    for one in found.constraints:
        # Of "3.10 or later" no version is told apart.
        ranged = roles[one.field] == "version" and any(value not in found.sentence.text for value in one.values)
        if len(one.values) > 1 and not one.together and not one.negated and not ranged:
            return one.field, one.values
    return _periods_asked(found)


def _periods_asked(found: Found) -> tuple[str, tuple[object, ...]] | None:
    """Two or more periods to be told apart, by what differs: years, or halves, quarters or months of one year."""
    name = date_asked(found)
    bounds = [(dated.period.low, dated.period.high) for dated in found.dates]
    if name is None or len(bounds) < 2 or len({date_field(found.sentence, dated) for dated in found.dates}) > 1:
        return None
    lengths: set[int] = set()
    starts: list[date] = []
    for low, high in bounds:
        if low is None or high is None or (low.day, high.day) != (1, 1):
            return None
        starts.append(low)
        lengths.add((high.year - low.year) * 12 + high.month - low.month)
    months = lengths.pop()
    if lengths or months not in _PERIODS_OF_MONTHS or any((low.month - 1) % months for low in starts):
        return None
    function = _PERIODS_OF_MONTHS[months]
    if function != "year" and len({low.year for low in starts}) > 1:
        # "Q1 2019 or Q1 2020"; what is of no such year is filtered out.
        if len({low.year for low in starts}) < len(starts) or _is_year_left_out(found):
            return None
        return f"year({name})", tuple(low.year for low in starts)
    values = (low.year if function == "year" else (low.month - 1) // months + 1 for low in starts)
    return f"{function}({name})", tuple(values)


def _is_year_left_out(found: Found) -> bool:
    """The second half in "more in the first half of 2024 than in the second half": of this year it is hardly."""
    said = [_YEAR.search(found.sentence.text[dated.start : dated.end]) is not None for dated in found.dates]
    return any(before and not said[place + 1] for place, before in enumerate(said[:-1]))


def is_condition(found: Found, number: str | None) -> bool:
    """Whether a number is named only for a bound on it: "permits with a budget over 100k"."""
    return number in {one.field for one in found.numbers}


def counts_documents(found: Found) -> bool:
    """Whether it is documents that are counted, rather than days or people."""
    sentence = found.sentence
    match = wording.HOW_MANY.search(sentence.text)
    if match is None:
        chinese = wording.HOW_MANY_ZH.search(sentence.text)
        return chinese is not None and (
            sentence.has_document_noun(sentence.text)
            or _COUNTED_ZH.search(chinese[0]) is not None
            or (chinese[0].endswith("有多少") and bool(found.pieces))
            or _stands_beside_kind(found, chinese)
        )
    index = sentence.index_from(match.end())
    if all(token.kind == "mark" or token.folded in _POLITE for token in sentence.tokens[index:]):
        return sentence.has_document_noun(sentence.text) or bool(
            found.pieces
        )  # "PEPs that are still Active: how many?"
    for _ in range(6):
        word = sentence.folded(index)
        if sentence.is_noun(index) or word in _OF_A_COUNT:
            return True
        mention, token = sentence.mention_at(index), sentence.token(index)
        dated = token is not None and any(first <= token.start < last for first, last in sentence.taken)
        # "how many escalated tickets" by a field that is true or false
        dated = dated or (token is not None and any(one.start <= token.start < one.end for one in found.pieces))
        if mention is not None:
            index = mention.last
        elif dated or word in _BEFORE_COUNTED:
            index += 1
        else:
            return False
    return False


def _stands_beside_kind(found: Found, match: re.Match[str]) -> bool:
    """王伟有[多少个]bug: what is counted is a kind of document by its name."""
    text = found.sentence.text
    return any(
        "kind" in concepts_of(one.field)
        and (one.start == match.end() or text[one.end : match.start()] in ("有", "共有"))
        for one in found.pieces
    )


def field_counted(found: Found) -> tuple[str, ...]:
    """The field whose values are counted: "how many authors", 几位作者; none where documents are."""
    sentence = found.sentence
    behind_it = wording.COUNTED_BEHIND_ZH.search(sentence.text)
    if behind_it is not None and (fields := _cue_before(found, behind_it.start())):
        return fields
    match = wording.HOW_MANY.search(sentence.text) or wording.COUNTED_ZH.search(sentence.text)
    if match is None:
        return ()
    index = sentence.index_from(match.end())
    while sentence.folded(index) in _BEFORE_VALUES:
        index += 1
    if sentence.is_noun(index) or sentence.mention_at(index) is not None:
        return ()
    roles = sentence.vocabulary.roles
    named, behind = sentence.cue(index)
    if sentence.is_noun(behind):
        return ()  # "how many emergency permits" are permits
    fields = tuple(name for name in named if roles.get(name) in _GROUPING and roles.get(name) != "boolean")
    if not fields and wording.PEOPLE_ALONE.match(sentence.text, match.end()):
        # "how many people are we" asks for no author: what they did must be said, or what they did it to.
        fields = fields_named(found, "person", start=match.end())
        nouns = any(sentence.is_noun(place) for place in range(index, len(sentence.tokens)))
        fields = fields or (sentence.vocabulary.of_role("person") if nouns else ())
    return fields


def _cue_before(found: Found, end: int) -> tuple[str, ...]:
    """The field whose word ends at a place: 只写过一个提案的[作者]有多少."""
    sentence, roles = found.sentence, found.sentence.vocabulary.roles
    for index in range(len(sentence.tokens)):
        named, behind = sentence.cue(index)
        fields = tuple(name for name in named if roles.get(name) in _GROUPING and roles.get(name) != "boolean")
        if fields and sentence.tokens[behind - 1].end == len(sentence.text[:end].rstrip()):
            return fields
    return ()


def asked_people(found: Found) -> tuple[str, ...]:
    """The fields of people, those of most documents first; of companies only where there are no others."""
    fields = found.sentence.vocabulary.of_role("person")
    people = tuple(name for name in fields if ORGANISATIONS.isdisjoint(lexicon.name_words(name)))
    return people or fields


def compared_group(found: Found) -> str | None:
    """What is compared by how many documents it has: years, people, the values of a field."""
    text = found.sentence.text
    period, dates = wording.WHICH_PERIOD.search(text), date_asked(found)
    if period and dates:
        word = next(filter(None, period.groups())).casefold()
        function = wording.PERIODS.get(word) or wording.PERIODS_ZH[word]
        return f"{'month' if wording.MONTH_OF_YEAR.search(text) else function}({dates})"
    fields = unconstrained(found, fields_named(found, "label", "tag", "person", "version"))
    if wording.WHO.search(text):
        people = asked_people(found)
        fields = (*(name for name in fields if name in people), *people)
    if not fields or (is_of_documents(found) and not period):
        return None
    return fields[0]


def is_of_documents(found: Found) -> bool:
    """ "which document has the most authors": the documents are compared, not the authors."""
    sentence = found.sentence
    most = wording.MOST_OF_ZH.search(sentence.text)
    if most is not None:
        noun = sentence.index_from(most.end())
        if sentence.is_noun(noun) and not sentence.cue_fields(noun + 1):
            return True  # 作者最多的三份文档
    match = wording.WHICH_NOUN.search(sentence.text)
    return match is not None and (match["noun"] or match["noun2"]).casefold() in (
        lexicon.DOCUMENT_NOUNS | found.sentence.nouns
    )


def fields_shown(found: Found, besides: set[str]) -> tuple[str, ...]:
    """The fields whose value a question asks for: "who sponsored PEP 703", "when was it resolved"."""
    sentence = found.sentence
    fields: list[str] = []
    for index in range(len(sentence.tokens)):
        fields += [name for name in sentence.cue_fields(index)[:1] if name not in besides]
    people, dates = sentence.vocabulary.of_role("person"), sentence.vocabulary.of_role("date")
    if not fields and wording.WHO.search(sentence.text) and people:
        fields.append(people[0])
    if wording.WHEN.search(sentence.text) and dates:
        fields = [name for name in fields if name in dates] or [dates[0]]
    return tuple(dict.fromkeys(name for name in fields if name in sentence.vocabulary.catalogue.fields))


def existence_asked(found: Found) -> Json | None:
    """The condition that a field is there, or not: "have a sponsor", 有 sponsor 的."""
    sentence = found.sentence
    for index, token in enumerate(sentence.tokens):
        roles = sentence.vocabulary.roles
        names = [name for name in sentence.cue_fields(index) if roles.get(name) not in ("date", None)]
        if not names:
            continue
        before = sentence.text[: token.start].rstrip()
        if wording.HAVING.search(before):
            return {"type": "exists", "key": names[0], "value": True}
        if wording.LACKING.search(before):
            return {"type": "exists", "key": names[0], "value": False}
    return None
