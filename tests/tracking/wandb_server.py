"""A W&B server on this machine, as far as a run needs one: a real client uploads to it, and a test reads what came.

It keeps what the file stream appends (history by line number, as the real server does), what GraphQL upserts, and
the uploaded files. Nothing of it imports or replaces a part of `wandb`.
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY = "tester"


@dataclass
class ServedRun:
    """One run as the server has it."""

    project: str
    upserted: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None
    history_requests: list[tuple[int, int]] = field(default_factory=list)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows without W&B's own columns."""
        rows = (json.loads(line) for line in self.lines)
        return [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]

    @property
    def steps(self) -> list[int]:
        return [json.loads(line)["_step"] for line in self.lines]


class WandbServer(ThreadingHTTPServer):
    """Runs by their id; `refuse_history_from` makes the file stream fail for good from that line on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: dict[str, ServedRun] = {}
        self.refuse_history_from: int | None = None
        self.operations: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The `data` of a GraphQL answer."""
        operation = re.search(r"(?:query|mutation)\s+(\w+)", query)
        name = operation[1] if operation else "Viewer"
        self.operations.append(name)
        action = getattr(self, f"_{name}", None)
        return action(variables) if action else {}

    def _Viewer(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {
            "viewer": {
                "id": "VXNlcjox",
                "entity": ENTITY,
                "username": ENTITY,
                "flags": "{}",
                "email": "tester@example.org",
                "teams": {"edges": []},
            }
        }

    def _ServerFeaturesQuery(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"serverInfo": {"features": []}}

    def _RunResumeStatus(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        run = self.runs.get(variables["name"])
        if run is None or run.project != variables["project"]:
            return {"model": {"id": "p", "name": variables["project"], "entity": _entity(), "bucket": None}}
        bucket = {
            "id": f"id-{variables['name']}",
            "name": variables["name"],
            "summaryMetrics": json.dumps(run.summary),
            "displayName": run.upserted.get("displayName"),
            "logLineCount": 0,
            "historyLineCount": len(run.lines),
            "eventsLineCount": len(run.events),
            "historyTail": json.dumps(run.lines[-1:]),
            "eventsTail": json.dumps(run.events[-1:]),
            "config": json.dumps(run.config),
            "tags": run.upserted.get("tags"),
            "notes": None,
            "wandbConfig": json.dumps({"t": run.config.get("_wandb", {}).get("value", {}).get("t", 1)}),
        }
        return {"model": {"id": "p", "name": run.project, "entity": _entity(), "bucket": bucket}}

    def _UpsertBucket(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = variables.get("name") or variables["id"].removeprefix("id-")
        inserted = name not in self.runs
        run = self.runs.setdefault(name, ServedRun(variables.get("project") or ""))
        given = {key: value for key, value in variables.items() if value is not None}
        run.upserted |= given
        if "config" in given:
            run.config = json.loads(given["config"])
        if "summaryMetrics" in given:
            run.summary = json.loads(given["summaryMetrics"])
        bucket = {
            "id": f"id-{name}",
            "name": name,
            "displayName": run.upserted.get("displayName"),
            "description": None,
            "config": json.dumps(run.config),
            "sweepName": None,
            "project": {"id": "p", "name": run.project, "entity": _entity()},
            "historyLineCount": len(run.lines),
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def _CreateRunFiles(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        run = variables["run"]
        files = [{"name": name, "uploadUrl": f"{self.url}/upload/{run}/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": f"id-{run}", "uploadHeaders": [], "files": files}}

    def _ArtifactType(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"project": None}

    def _CreateArtifact(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """Every artifact (one comes with each table) is there already, so nothing of it is uploaded."""
        artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": {"latestArtifact": {"id": "a"}}}
        return {"createArtifact": {"artifact": artifact}}

    def stream(self, run_id: str, request: dict[str, Any]) -> int:
        """Take one file-stream request; returns the HTTP status."""
        run = self.runs[run_id]
        for name, chunk in request.get("files", {}).items():
            offset, content = chunk["offset"], chunk["content"]
            if name == "wandb-history.jsonl":
                if self.refuse_history_from is not None and offset + len(content) > self.refuse_history_from:
                    return 404
                run.history_requests.append((offset, len(content)))
                run.lines[offset : offset + len(content)] = content
            elif name == "wandb-events.jsonl":
                run.events[offset : offset + len(content)] = content
            elif name == "wandb-summary.json":
                run.summary = json.loads(content[-1])
        if request.get("complete"):
            run.exit_code = request["exitcode"]
        return 200


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/graphql":
            request = json.loads(body)
            self._reply(200, {"data": self.server.answer(request["query"], request.get("variables") or {})})
        elif self.path.endswith("/file_stream"):
            self._reply(self.server.stream(self.path.split("/")[-2], json.loads(body)), {})
        else:
            self._reply(404, {})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        run_id, _, name = self.path.removeprefix("/upload/").partition("/")
        self.server.runs[run_id].files[name] = body
        self._reply(200, {})

    def do_GET(self) -> None:
        self._reply(404, {})

    def _reply(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client's process ends with connections open
            super().handle()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Nothing."""


def _entity() -> dict[str, str]:
    return {"id": "e", "name": ENTITY}


@contextlib.contextmanager
def serving() -> Iterator[WandbServer]:
    """A server that answers until the end of the block."""
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
