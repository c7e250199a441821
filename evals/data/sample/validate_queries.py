"""Check the sample data set: corpus.jsonl, other-tenant.jsonl and queries.jsonl.

Usage: python3 validate_queries.py     (standard library only; exits 1 on any error)
"""

import json
import operator
import re
import sqlite3
import sys
from collections import Counter
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

Record = dict[str, Any]

HERE = Path(__file__).resolve().parent
CJK = re.compile(r"[\u4e00-\u9fff]")
TEXT_FIELDS = ["id", "title", "text", "url"]
KEYS = ["kind", "team", "author", "published", "tags", "region", "status", "severity", "minutes_down", "budget_usd"]
KEYS += ["language", "public"]
DOC_FIELDS = TEXT_FIELDS + KEYS
QUERY_FIELDS = ["id", "text", "lang", "now", "class", "split", "history"]
QUERY_FIELDS += ["filter", "sources", "relevant", "answer", "notes"]
ALLOWED: dict[str, set[str | None]] = {
    "kind": {"proposal", "runbook", "incident", "product-note", "policy", "meeting-note"},
    "region": {"emea", "apac", "amer", "global"},
    "status": {"draft", "approved", "implemented", "rejected", "archived", None},
    "severity": {"sev1", "sev2", "sev3", None},
    "language": {"en", "zh"},
}
CLASSES = ["semantic", "keyword", "filtered", "relative-date", "analytic", "follow-up", "multi-part", "none", "web"]
MINIMUM = dict(zip(CLASSES, (18, 14, 20, 10, 10, 6, 4, 4, 4), strict=True))
SOURCES = {"vector", "fulltext", "sql", "web", "none"}
ORDERED = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
ONLY_IN = {"minutes_down": ("incident", int), "severity": ("incident", str), "budget_usd": ("proposal", int)}
INSERT = "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

errors: list[str] = []


def load(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def check_unique(what: str, items: list[str]) -> None:
    errors.extend(f"{what} used {times} times: {item}" for item, times in Counter(items).items() if times > 1)


def check_date(where: str, value: object, first: str, last: str) -> None:
    try:
        if first <= date.fromisoformat(str(value)).isoformat() <= last:
            return
    except ValueError:
        pass
    errors.append(f"{where}: {value!r} is not an ISO date from {first} to {last}")


def check_document(doc: Record) -> None:
    name, fields = doc.get("id"), list(doc)
    if fields[: len(DOC_FIELDS)] != DOC_FIELDS or set(fields) - {*DOC_FIELDS, "important", "questions"}:
        errors.append(f"{name}: fields {fields}")
        return
    for key, allowed in ALLOWED.items():
        if doc[key] not in allowed:
            errors.append(f"{name}: {key} {doc[key]!r}")
    check_date(str(name), doc["published"], "2023-01-01", "2026-11-30")
    for key, (only, kind) in ONLY_IN.items():
        if isinstance(doc[key], kind) != (doc["kind"] == only):
            errors.append(f"{name}: {key} {doc[key]!r} in a {doc['kind']}")
    if not all(isinstance(doc[key], str) and doc[key].strip() for key in (*TEXT_FIELDS, "team", "author")):
        errors.append(f"{name}: empty text field")
    for key in ("tags", "important", "questions"):
        if key in doc and not (doc[key] and all(isinstance(x, str) for x in doc[key])):
            errors.append(f"{name}: {key} {doc[key]!r}")
    share = len(CJK.findall(doc["text"])) / max(1, len(doc["text"]))
    if (share > 0.3) != (doc["language"] == "zh"):
        errors.append(f"{name}: text does not look like {doc['language']}")


def shingles(doc: Record, size: int = 8) -> set[tuple[str, ...]]:
    """Runs of eight words; a Chinese character counts as a word."""
    words = re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", doc["text"].lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def check_corpus(docs: list[Record], others: list[Record]) -> None:
    for doc in docs + others:
        check_document(doc)
    check_unique("id", [d["id"] for d in docs + others])
    if len(docs) < 120 or len(others) < 16 or any(ALLOWED[key] - {d[key] for d in docs} for key in ALLOWED):
        errors.append("too few documents, or a kind, language, region, status or severity does not occur")
    grams = {d["id"]: shingles(d) for d in docs + others}
    for first, second in combinations(grams, 2):
        common = len(grams[first] & grams[second])
        if common and common >= 0.3 * len(grams[first] | grams[second]):
            errors.append(f"{first} and {second} are near-duplicates")
    everything = "\n".join(json.dumps(d, ensure_ascii=False) for d in docs).lower()
    if {type(d["public"]) for d in docs} != {bool} or {d["public"] for d in others} != {False}:
        errors.append("public must be a boolean, and false for the other tenant")
    for doc in others:
        canaries = doc.get("important", [])
        if len(canaries) != 1 or canaries[0] not in doc["text"]:
            errors.append(f"{doc['id']}: needs one canary word in important and text")
        elif canaries[0].lower() in everything:
            errors.append(f"{doc['id']}: canary {canaries[0]} occurs in corpus.jsonl")


def values(doc: Record, key: str) -> list[Any]:
    value = doc[key]
    return value if isinstance(value, list) else [] if value is None else [value]


def matches(node: Record | None, doc: Record) -> bool:
    if node is None:
        return True
    kind = node["type"]
    if kind in ("and", "or"):
        results = [matches(part, doc) for part in node["filters"]]
        return all(results) if kind == "and" else any(results)
    have, want = values(doc, node["key"]), node["value"]
    if kind in ORDERED:
        return any(ORDERED[kind](x, want) for x in have)
    wanted = set(want) if kind in ("in", "nin") else {want}
    return bool(wanted & set(have)) == (kind in ("eq", "in"))


def check_filter(qid: str, node: Record, docs: list[Record]) -> None:
    kind = node.get("type")
    if kind in ("and", "or"):
        if set(node) != {"type", "filters"} or len(node["filters"]) < 2:
            errors.append(f"{qid}: malformed {kind}")
        for part in node.get("filters", []):
            check_filter(qid, part, docs)
        return
    known_type = kind in ("eq", "ne", "in", "nin", *ORDERED)
    if not known_type or set(node) != {"type", "key", "value"} or node["key"] not in KEYS:
        errors.append(f"{qid}: malformed comparison {node}")
        return
    key, value = node["key"], node["value"]
    if (kind in ("in", "nin")) != isinstance(value, list):
        errors.append(f"{qid}: {kind} with value {value!r}")
    known = {x for d in docs for x in values(d, key)}
    for item in value if isinstance(value, list) else [value]:
        if key == "published":
            check_date(qid, item, "2023-01-01", "2027-01-01")
        elif kind in ORDERED and (key not in ("minutes_down", "budget_usd") or type(item) is not int):
            errors.append(f"{qid}: order comparison of {key} with {item!r}")
        elif kind not in ORDERED and (item not in known or (key == "public") != isinstance(item, bool)):
            errors.append(f"{qid}: {key} {item!r} does not occur in the corpus")


def make_db(docs: list[Record]) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE TABLE documents ({', '.join(DOC_FIELDS)})")
    rows = [{**doc, "tags": json.dumps(doc["tags"])} for doc in docs]
    db.executemany(INSERT, [[row[field] for field in DOC_FIELDS] for row in rows])
    return db


def to_sqlite(sql: str) -> str:
    """Rewrite the PostgreSQL spellings in use: = ANY(array), unnest, EXTRACT(YEAR), DATE literals."""
    exists = r"EXISTS (SELECT 1 FROM json_each(documents.\2) WHERE value = \1)"
    sql = re.sub(r"('(?:[^']|'')*')\s*=\s*ANY\((\w+)\)", exists, sql)
    for column, name in re.findall(r"unnest\((\w+)\) AS (\w+)", sql):
        sql = sql.replace(f"unnest({column}) AS {name}", f"json_each(documents.{column}) AS je")
        sql = re.sub(rf"\b{name}\b", "je.value", sql)
    sql = re.sub(r"EXTRACT\(YEAR FROM (\w+)\)", r"CAST(strftime('%Y', \1) AS INTEGER)", sql)
    return re.sub(r"DATE '(\d{4}-\d\d-\d\d)'", r"'\1'", sql)


def run_sql(db: sqlite3.Connection, sql: str) -> object:
    cursor = db.execute(to_sqlite(sql))
    rows = [[int(x) if isinstance(x, float) and x.is_integer() else x for x in row] for row in cursor.fetchall()]
    if len(cursor.description) == 1:
        return rows[0][0] if len(rows) == 1 else [row[0] for row in rows]
    return rows[0] if len(rows) == 1 else {str(row[0]): row[1] for row in rows}


def check_query(query: Record, docs: dict[str, Record], db: sqlite3.Connection) -> None:
    qid, kind, gold, relevant = query["id"], query["class"], query["filter"], query["relevant"]
    before = len(errors)
    if gold is not None:
        check_filter(qid, gold, list(docs.values()))
    for name, grade in relevant.items():
        if name not in docs or grade not in (1, 2):
            errors.append(f"{qid}: {name} with grade {grade}")
        elif len(errors) == before and not matches(gold, docs[name]):
            errors.append(f"{qid}: {name} does not satisfy the filter")
    sources, roles = query["sources"], [turn["role"] for turn in query["history"]]
    sql = re.search(r"SQL: (.+)$", query["notes"])
    answer = run_sql(db, sql[1]) if sql else None
    outside = kind in ("none", "web")
    dates = '"published"' in json.dumps(gold)
    needed = {"filtered": gold is not None, "relative-date": dates, "semantic": gold is None}
    problems = {
        "unknown class or split": kind not in MINIMUM or query["split"] not in ("dev", "test"),
        "lang does not fit the text": query["lang"] != ("zh" if CJK.search(query["text"]) else "en"),
        "now, text or notes": query["now"] != "2026-11-20" or not query["text"].strip() or not query["notes"].strip(),
        "sources": not sources or bool(set(sources) - SOURCES) or len(set(sources)) != len(sources),
        "history": roles != ["user", "assistant"] * (len(roles) // 2) or (kind == "follow-up" and not roles),
        "filter, documents or source": outside and (sources != [kind] or bool(relevant) or gold is not None),
        "no document with grade 2": not outside and kind != "analytic" and 2 not in relevant.values(),
        f"wrong filter for {kind}": not needed.get(kind, True),
        "analytic needs the sql source and its SQL": kind == "analytic" and (sources != ["sql"] or not sql),
        f"answer {query['answer']!r}, expected {answer!r}": answer != query["answer"],
    }
    errors.extend(f"{qid}: {problem}" for problem, found in problems.items() if found)


def check_queries(queries: list[Record], docs: list[Record]) -> None:
    by_id, db = {d["id"]: d for d in docs}, make_db(docs)
    for number, query in enumerate(queries, 1):
        if list(query) != QUERY_FIELDS or query["id"] != f"s{number:03}":
            errors.append(f"query {number}: id {query.get('id')}, fields {list(query)}")
        else:
            check_query(query, by_id, db)
    check_unique("text", [str(q.get("text")).lower() for q in queries])


def print_table(queries: list[Record]) -> None:
    print(f"{'class':14}  en  zh  dev test  all")
    for kind in [*MINIMUM, "all"]:
        rows = [q for q in queries if kind in ("all", q["class"])]
        count = Counter(value for q in rows for value in (q["lang"], q["split"]))
        print(f"{kind:14} {count['en']:3} {count['zh']:3}  {count['dev']:3}  {count['test']:3}  {len(rows):3}")
        if len(rows) < MINIMUM.get(kind, 90) or abs(count["dev"] - count["test"]) > 2:
            errors.append(f"{kind}: too few questions or unbalanced splits")


def main() -> int:
    docs, others, queries = (load(HERE / f"{name}.jsonl") for name in ("corpus", "other-tenant", "queries"))
    check_corpus(docs, others)
    check_queries(queries, docs)
    print_table(queries)
    print(f"documents {len(docs)} {dict(Counter(d['language'] for d in docs))}, other tenant {len(others)}")
    judged = [name for q in queries for name in q["relevant"]]
    print(f"with a filter {sum(q['filter'] is not None for q in queries)}, judgements {len(judged)}, ", end="")
    print(f"distinct relevant documents {len(set(judged))}")
    for error in errors:
        print("ERROR", error)
    print("FAILED" if errors else "OK", f"({len(errors)} errors)")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
