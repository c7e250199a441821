import prompts
from agent.settings import Settings
from evals.provenance import prompt_digests, public_settings


def test_settings_are_shown_without_secrets():
    settings = Settings(
        database_url="postgresql://me:hunter2@host/db",
        embedder_api_key="hunter2",
        embedder_base_url="https://me:hunter2@models.example/v1",
        fusion="rrf",
    )

    shown = public_settings(settings)

    assert "hunter2" not in str(shown)
    assert (shown["database_url"], shown["fusion"]) == ("given", "rrf")
    assert shown["embedder_base_url"] == "https://models.example/v1"
    assert public_settings(Settings())["database_url"] is None


def test_every_prompt_has_its_digest():
    packaged_templates = prompts.packaged_templates()
    assert prompt_digests(packaged_templates) == {
        name: packaged_templates.load(name).digest for name in packaged_templates.names()
    }
