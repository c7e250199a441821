"""The commands that answer a question or show how an answer was made."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.serve.cli.options import (
    AsJson,
    BudgetTokens,
    ContextName,
    Principal,
    QuestionOptions,
    Template,
    Tenant,
    principals_or_all,
    with_question_options,
)
from agent.serve.cli.service_runner import run_with_service
from agent.serve.exit_codes import DONE, UNAVAILABLE

if TYPE_CHECKING:
    from agent.service.service import Service

Question = Annotated[str, typer.Argument(help="the question")]
TraceId = Annotated[str, typer.Argument(help="the trace_id of an answer", metavar="TRACE_ID")]


@with_question_options
def retrieve(
    question: Question,
    options: QuestionOptions,
    page: Annotated[int, typer.Option(help="page of hits, from 1")] = 1,
    explain: Annotated[bool, typer.Option("--explain", help="also show how the hits were found")] = False,
    as_json: AsJson = False,
) -> int:
    """Show ranked hits for a question. Exit code 3 if no source answered."""
    request = options.request_arguments()

    async def run(service: "Service") -> int:
        from agent.serve.cli import output

        result = await service.retrieve(question, **request, page=page, explain=explain)
        if as_json:
            output.write_json(result.model_dump(mode="json"))
        else:
            output.print_result(result, explain=explain, caller_filter=request["filter"])
            output.print_trace_hint(service.traces, result.trace_id, options.tenant)
        return UNAVAILABLE if output.no_source_answered(result) else DONE

    return run_with_service(run)


@with_question_options
def augment(
    question: Question,
    options: QuestionOptions,
    template: Template = None,
    budget_tokens: BudgetTokens = 3000,
    context: ContextName = None,
    as_json: AsJson = False,
) -> int:
    """Show the prompt for a question, with citations."""
    request = options.request_arguments()

    async def run(service: "Service") -> int:
        from agent.serve.cli import output

        prompt = await service.augment(
            question, **request, template=template, budget_tokens=budget_tokens, context=context
        )
        if as_json:
            output.write_json(prompt.model_dump(mode="json"))
        else:
            output.print_prompt(prompt, caller_filter=request["filter"])
            output.print_trace_hint(service.traces, prompt.trace_id, options.tenant)
        return DONE

    return run_with_service(run)


@with_question_options
def ask(
    question: Question,
    options: QuestionOptions,
    template: Template = None,
    budget_tokens: BudgetTokens = 3000,
    context: ContextName = None,
    history: Annotated[
        Path | None, typer.Option(help="file with the earlier turns: a JSON list or JSONL of {role, content}")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="llm: a model also checks the answer; off: none does")] = None,
    mode: Annotated[
        str, typer.Option(help="retrieve: search once and answer; tool: the model searches by itself")
    ] = "retrieve",
    as_json: AsJson = False,
) -> int:
    """Stream the answer to a question.

    The cited passages follow. Without a model, the passages are shown instead.
    """
    from agent.serve.cli.ask import answer_question, read_history

    request = options.request_arguments()
    messages = read_history(history) if history else None
    return run_with_service(
        lambda service: answer_question(
            service,
            question,
            **request,
            messages=messages,
            template=template,
            budget_tokens=budget_tokens,
            context=context,
            judge=judge,
            mode=mode,
            as_json=as_json,
        )
    )


def explain(trace_id: TraceId, tenant: Tenant = None, principal: Principal = None, as_json: AsJson = False) -> int:
    """Show how an answer was produced.

    Shows the interpretation, searches, hits and ranking, and the conditions that were dropped.
    """
    from agent.serve.cli.explain import trace_report

    return run_with_service(
        lambda service: trace_report.explain(
            service, trace_id, viewer=service.viewer(tenant, principals_or_all(principal)), as_json=as_json
        )
    )


def replay(
    trace_id: TraceId,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a setting to change; repeatable")
    ] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """Repeat a request with other settings.

    No model is called; the differences are shown.
    """
    from agent.serve.cli.explain import replay_report

    return run_with_service(
        lambda service: replay_report.replay(
            service,
            trace_id,
            changes or (),
            viewer=service.viewer(tenant, principals_or_all(principal)),
            as_json=as_json,
        )
    )


def records(
    user: Annotated[str | None, typer.Option(help="questions of this user, as the callers named them")] = None,
    conversation: Annotated[str | None, typer.Option(help="questions of this conversation")] = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="erase the questions, with their traces, turns and feedback")
    ] = False,
    limit: Annotated[int, typer.Option(help="maximum number of questions, newest first", min=1, max=10_000)] = 50,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: AsJson = False,
) -> int:
    """List or erase past questions.

    Shows who asked and the answer; `--erase` erases the questions of one user or conversation.
    """
    from agent.serve.cli.records import check_arguments, run

    check_arguments(user=user, conversation=conversation, erase=erase)
    return run_with_service(
        lambda service: run(
            service,
            viewer=service.viewer(tenant, principals_or_all(principal)),
            user=user,
            conversation=conversation,
            limit=limit,
            erase=erase,
            as_json=as_json,
        )
    )
