"""How to start each agent CLI against a scripted model, without dialogs, update checks or an account.

Tested with the versions that install.py pins. The environment is built from scratch, so no proxy, key or
setting of the machine reaches an agent; HOME is the test's; the working folder is a git repository that the
agent trusts.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from real_agents.dialects import Call
from real_agents.install import PACKAGES, Package

KEY = "sk-ant-dummy-0000000000000000000000000000"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent runs: its HOME, its working folder, and its model's port."""

    home: Path
    work: Path
    port: int

    def put(self, path: str, content: str | Mapping[str, Any]) -> None:
        """Write a file in the agent's home: text, or JSON."""
        target = self.home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Start:
    """The agent's arguments, and its environment besides the common part."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Agent:
    """What tests need to know about an agent.

    ready, permission, question, plan: a regular expression for a row that it draws when it has started and
    waits, or that the dialog has; "" if it has none. question_call, plan_call: the tools that ask.
    clear: starts a new conversation. planning, free, resume: arguments that make it plan first, run commands
    without asking, continue the last conversation. prompts: what precedes a first prompt on its command line.
    native: it has hooks that relay uses here (not gemini, which reads them only from a folder owned by root).
    pause: seconds in which it takes an Enter after other keys for a newline.
    """

    package: Package
    start: Callable[[Place], Start]
    ready: str
    permission: str = ""
    question: str = ""
    question_call: Call | None = None
    plan: str = ""
    plan_call: Call | None = None
    planning: tuple[str, ...] = ()
    clear: str = ""
    free: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    native: bool = False
    pause: float = 0.0

    @property
    def name(self) -> str:
        return self.package.name


def prepare(place: Place, package: Package) -> dict[str, str]:
    """Make the folders; return the environment common to all agents."""
    place.home.mkdir(parents=True, exist_ok=True)
    place.work.mkdir(parents=True, exist_ok=True)
    place.put(
        ".gitconfig", "[user]\n\tname = Dev\n\temail = dev@example.com\n[init]\n\tdefaultBranch = main\n"
    )
    environment = {
        **package.environment_path(),
        "HOME": str(place.home),
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LANG": "C.UTF-8",
        "NO_PROXY": "127.0.0.1",
    }
    subprocess.run(["git", "init", "-q", place.work], check=True, env=environment)
    return environment


def _claude(place: Place) -> Start:
    """Avoid up to three dialogs at the start, and let it run hooks in this folder."""
    place.put(
        ".claude.json",
        {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            # 1.0.128 needs allowedTools.
            "projects": {str(place.work): {"hasTrustDialogAccepted": True, "allowedTools": []}},
        },
    )
    environment = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": place.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    # otherwise 2.1.330 asks for no permission
    return Start(("--permission-mode=default",), environment)


def _codex(place: Place) -> Start:
    """Pass --no-daemon: otherwise its terminals share a background server."""
    place.put(
        ".codex/config.toml",
        f"""model = "mock-model"
model_provider = "mock"
approval_policy = "on-request"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "{place.url}/v1"
env_key = "MOCK_API_KEY"
wire_api = "responses"
[projects."{place.work}"]
trust_level = "trusted"
[analytics]
enabled = false
""",
    )
    return Start(("--no-daemon",), {"MOCK_API_KEY": "sk-dummy"})


def _qwen(place: Place) -> Start:
    """Put the model's name into both the environment and the settings."""
    place.put(
        ".qwen/settings.json",
        {
            "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "model": {"name": "mock-model"},
            # Otherwise it asks the model after each turn what to remember, and what the user may say next.
            "ui": {"enableFollowupSuggestions": False},
            "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        },
    )
    environment = {
        "OPENAI_API_KEY": "sk-dummy",
        "OPENAI_BASE_URL": f"{place.url}/v1",
        "OPENAI_MODEL": "mock-model",
    }
    return Start((), environment)


def _pi(place: Place) -> Start:
    """Put the provider into models.json; both --provider and --model are required."""
    model = {
        "id": "mock-model",
        "name": "Mock",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 100000,
        "maxTokens": 4000,
    }
    provider = {"baseUrl": f"{place.url}/v1", "api": "openai-completions", "apiKey": "sk-dummy"}
    # Otherwise 0.87.1 does not compact a conversation of a few words.
    place.put(".pi/agent/settings.json", {"compaction": {"keepRecentTokens": 1}})
    place.put(".pi/agent/models.json", {"providers": {"mock": {**provider, "models": [model]}}})
    environment = {"PI_SKIP_VERSION_CHECK": "1", "PI_OFFLINE": "1"}
    return Start(("--provider", "mock", "--model", "mock-model"), environment)


def _gemini(place: Place) -> Start:
    """Pass -m with a plain flash model: otherwise a router first asks the model which model to use."""
    place.put(
        ".gemini/settings.json",
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "ui": {"hideTips": True},
        },
    )
    environment = {"GEMINI_API_KEY": "dummy-key", "GOOGLE_GEMINI_BASE_URL": place.url}
    return Start(("-m", "gemini-2.5-flash"), environment)


def _opencode(place: Place) -> Start:
    """Set permission "ask": otherwise commands run at once. Without the lock file it installs a package."""
    limit = {"context": 200000, "output": 8000}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Mock",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "sk-dummy"},
        "models": {"mock-model": {"name": "Mock model", "tool_call": True, "limit": limit}},
    }
    place.put(
        ".config/opencode/opencode.json",
        {
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": False,
            "share": "disabled",
            "model": "mock/mock-model",
            "small_model": "mock/mock-model",
            "permission": {"bash": "ask", "edit": "ask"},
            "provider": {"mock": provider},
        },
    )
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    place.put(".config/opencode/package-lock.json", lock)
    (place.home / ".config" / "opencode" / "node_modules").mkdir(exist_ok=True)
    names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD")
    return Start((), {f"OPENCODE_DISABLE_{name}": "1" for name in names})


def _copilot(place: Place) -> Start:
    """Share what it unpacks at its first start."""
    place.put(".copilot/settings.json", {"banner": "never"})
    place.put(".copilot/config.json", {"trustedFolders": [str(place.work)]})
    environment = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{place.url}/v1",
        "COPILOT_PROVIDER_API_KEY": "sk-dummy",
        "COPILOT_MODEL": "mock-model",
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "1000000",  # otherwise it soon forgets a long conversation
        "COPILOT_CACHE_HOME": str(PACKAGES["copilot"].folder / "unpacked"),  # once, 235 MB
    }
    return Start((), environment)


def _aider(place: Place) -> Start:
    """Put a fresh price list into its cache; otherwise it downloads one."""
    place.put(".aider/caches/model_prices_and_context_window.json", {"mock-model": {}})
    arguments = (
        "--model=openai/mock-model",
        "--no-check-update",
        "--no-show-model-warnings",
        "--analytics-disable",
        "--no-show-release-notes",
        "--no-gitignore",
        "--edit-format=diff",
    )
    environment = {
        "OPENAI_API_KEY": "sk-dummy",
        "OPENAI_API_BASE": f"{place.url}/v1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return Start(arguments, environment)


_QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [
        {"label": "Red", "description": "The warm one"},
        {"label": "Blue", "description": "The cold one"},
    ],
    "multiSelect": False,
}

_FORM = {
    "message": "Which colour?",
    "requestedSchema": {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["Red", "Blue"]}},
        "required": ["colour"],
    },
}

AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            PACKAGES["claude"],
            _claude,
            ready=r"\? for shortcuts|plan mode on",
            permission=r"Do you want to proceed\?",
            question=r"Enter to select",
            question_call=Call("AskUserQuestion", {"questions": [_QUESTION]}),
            plan=r"Would you like to proceed\?|Claude wants to exit plan mode",
            plan_call=Call("ExitPlanMode", {"plan": "1. Fix the fence."}),
            planning=("--permission-mode=plan",),
            clear="/clear",
            free=("--allowedTools=Bash,Write",),
            resume=("--continue",),
            native=True,
        ),
        Agent(
            PACKAGES["codex"],
            _codex,
            ready="Ask Codex to do anything",
            permission=r"Would you like to run the following command\?",
            clear="/clear",
            free=("--dangerously-bypass-approvals-and-sandbox",),
            resume=("resume", "--last"),
            native=True,
        ),
        Agent(
            PACKAGES["qwen"],
            _qwen,
            ready="Type your message",
            permission=r"Allow execution of",
            question=r"Which colour\?",
            question_call=Call("ask_user_question", {"questions": [_QUESTION]}),
            plan=r"Would you like to proceed\?",
            plan_call=Call("exit_plan_mode", {"plan": "1. Fix the fence."}),
            planning=("--approval-mode=plan",),
            clear="/clear",
            free=("--approval-mode=yolo",),
            resume=("--continue",),
            prompts=("--prompt-interactive",),
            native=True,
        ),
        Agent(PACKAGES["pi"], _pi, ready="mock-model", clear="/new", resume=("--continue",), native=True),
        Agent(
            PACKAGES["gemini"],
            _gemini,
            pause=0.4,
            ready="Type your message",
            permission=r"Allow execution of",
            clear="/clear",
            free=("--approval-mode=yolo",),
        ),
        Agent(
            PACKAGES["opencode"],
            _opencode,
            ready=r"ctrl\+p commands",
            permission=r"Permission required",
            question=r"Which colour\?",
            question_call=Call("question", {"questions": [_QUESTION]}),
            clear="/new",
            free=("--auto",),
            resume=("--continue",),
            prompts=("--prompt",),
            native=True,
        ),
        Agent(
            PACKAGES["copilot"],
            _copilot,
            ready="· / commands",
            permission=r"Do you want to run this command\?",
            question=r"Which colour\?",
            question_call=Call("ask_user", _FORM),
            plan="Plan Ready for Review",
            plan_call=Call("exit_plan_mode", {"summary": "1. Fix the fence.", "actions": ["interactive"]}),
            planning=("--plan",),
            clear="/clear",
            free=("--allow-all-tools",),
            resume=("--continue",),
            prompts=("--interactive",),
            native=True,
        ),
        Agent(PACKAGES["aider"], _aider, ready="diff>", permission=r"Run shell command\?", clear="/clear"),
    )
}
