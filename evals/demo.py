"""`signalbox demo`: ingest the bundled sample, answer one question by rules and by a model, and show the next steps."""

import asyncio
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.types import Prompt

SAMPLE = Path(__file__).parent / "data" / "sample"
RECORDING = SAMPLE / "recording.jsonl"
COLLECTION = "sample"
QUESTION = "查找一下去年第三季度由‘基础设施’团队发布的关于Kubernetes成本优化的技术方案"
MEANING = "find the infrastructure team's technical proposals of last year's third quarter on lowering Kubernetes costs"
# The date of the sample, so that "last year" is always 2025.
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def demo() -> int:
    """Ingest the bundled sample and answer a question.

    Shows the filters read from the question, the hits with their scores, the prompt and the next commands.
    """
    from agent.serve.cli import output
    from agent.serve.cli import run as run_command

    print("1. Ingest the documents of two tenants (embedded PostgreSQL starts automatically)\n", flush=True)
    declared = ["--schema", str(SAMPLE / "schema.json")]
    for tenant, file, schema in (("default", "corpus.jsonl", declared), ("clinic", "other-tenant.jsonl", [])):
        code = run_command(["ingest", str(SAMPLE / file), "--collection", COLLECTION, "--tenant", tenant, *schema])
        if code:
            return code
    by_rules = asyncio.run(_ask(intent="rules"))
    by_model = asyncio.run(_ask(intent="llm", llm=f"replay:{RECORDING}"))
    print(f"\n2. The question, asked on {NOW:%d %B %Y}\n\n   {QUESTION}\n   ({MEANING})\n")
    print("3. How the rules read it, without a model\n")
    _show_intent(by_rules)
    print("4. How a model reads it (a recorded reply, which costs no tokens)\n")
    _show_intent(by_model)
    print("5. The hits, with the score of each source and the fused score\n")
    output.print_result(by_rules, explain=False)
    print("6. The single prompt, with numbered citations\n")
    output.print_prompt(by_rules)
    print(NEXT.format(signalbox=_program()))
    return 0


async def _ask(*, intent: str, llm: str | None = None) -> "Prompt":
    from agent import open_service

    async with open_service(llm=llm) as service:
        return await service.augment(QUESTION, collection=COLLECTION, intent=intent, now=NOW, top_k=3, tenant="default")


def _show_intent(prompt: "Prompt") -> None:
    from agent.serve.cli import output

    for name, value in output.intent_lines(prompt.intent):
        print(f"   {name:<10} {value}")
    print()


def _program() -> str:
    """Return what a shell in this folder calls this program: its name if the PATH leads to it, else its path."""
    started = Path(sys.argv[0])
    found = shutil.which("signalbox")
    if started.name != "signalbox" or (found and Path(found).resolve() == started.resolve()):
        return "signalbox"
    return sys.argv[0]


NEXT = """
Next:
  {signalbox} serve                  # the console at http://127.0.0.1:8000/, the HTTP API, MCP at /mcp
  {signalbox} retrieve "which sev1 incidents did payments have last year?" --collection sample --explain
  {signalbox} retrieve "哪个团队发布的文档最多？" --collection sample
  {signalbox} sql "SELECT team, count(*) FROM documents GROUP BY team" --collection sample
  {signalbox} collections show sample
  {signalbox} ingest YOUR_FOLDER --collection mine
  {signalbox} init                   # writes a commented signalbox.toml
  {signalbox} doctor
With a model (SIGNALBOX_LLM=openai/MODEL and SIGNALBOX_LLM_API_KEY, or SIGNALBOX_LLM_BASE_URL for your own server)
the model also reads each question, its reading adds hits to those of the rules, and `signalbox ask` answers.
"""
