"""`make demo`: the bundled sample ingested, one question answered, and what to do next."""

import asyncio
import json
import sys
from pathlib import Path

from agent import open_service
from agent.serve import output
from agent.serve.cli import run as run_command
from agent.types import Prompt

SAMPLE = Path(__file__).parent / "data" / "sample"
COLLECTION = "handbook"
QUESTION = "Which proposals would lower what our Kubernetes clusters cost?"
FILTER = {
    "type": "and",
    "filters": [
        {"type": "eq", "key": "team", "value": "infrastructure"},
        {"type": "eq", "key": "kind", "value": "proposal"},
        {"type": "gte", "key": "published", "value": "2025-07-01"},
        {"type": "lt", "key": "published", "value": "2025-10-01"},
    ],
}


def main() -> int:
    """Run the demo; returns the exit code."""
    print("1. Documents of two tenants go in (embedded PostgreSQL starts by itself)\n", flush=True)
    declared = ["--schema", str(SAMPLE / "schema.json")]
    for tenant, file, schema in (("default", "corpus.jsonl", declared), ("clinic", "other-tenant.jsonl", [])):
        code = run_command(["ingest", str(SAMPLE / file), "--collection", COLLECTION, "--tenant", tenant, *schema])
        if code:
            return code
    prompt = asyncio.run(_ask())
    print(f"\n2. The question\n\n   {QUESTION}\n")
    print("3. The intent: what the caller fixed, and the question's language\n")
    print(f"   language {prompt.intent.language}, searches {list(prompt.intent.searches)}")
    print(f"   filter   {json.dumps(prompt.intent.filter)}\n")
    print("4. The hits, with the score of each source and the fused one\n")
    output.show_result(prompt, explain=False)
    print("5. The single prompt, with numbered citations\n")
    output.show_prompt(prompt)
    print(_NEXT)
    return 0


async def _ask() -> Prompt:
    async with open_service() as service:
        return await service.augment(QUESTION, collection=COLLECTION, filter=FILTER, top_k=3, tenant="default")


_NEXT = f"""
Next:
  .venv/bin/signalbox retrieve "what do we do when redis fails over?" --collection {COLLECTION} --explain
  .venv/bin/signalbox collections show {COLLECTION}
  .venv/bin/signalbox ingest YOUR_FOLDER --collection mine
  .venv/bin/signalbox augment "your question" --collection mine
  .venv/bin/signalbox doctor
"""


if __name__ == "__main__":
    sys.exit(main())
