"""A W&B server on this machine, as far as a run needs one: a real client uploads to it, and a test reads what came.

History lies by line number, as on the real server. Nothing here imports or replaces a part of `wandb`.
"""

import contextlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VIEWER = {"id": "v", "entity": "tester", "username": "tester", "flags": "{}", "teams": {"edges": []}}
# Every artifact (one comes with each table) is there already, so nothing of it is uploaded.
ARTIFACT = {"artifact": {"id": "a", "state": "COMMITTED", "artifactSequence": {"latestArtifact": {"id": "a"}}}}


@dataclass
class ServedRun:
    """One run as the server has it; `requests` are the first line and the number of lines of each."""

    name: str
    project: str
    upserted: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    console: dict[int, str] = field(default_factory=dict)
    exit_code: int | None = None
    requests: list[tuple[int, int]] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        return json.loads(self.upserted.get("config", "{}"))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows, without W&B's own columns but for the step."""
        rows = (json.loads(line) for line in self.lines)
        return [{key: value for key, value in row.items() if key == "_step" or key[0] != "_"} for row in rows]

    def bucket(self) -> dict[str, Any]:
        """The run as GraphQL has it."""
        project = {"id": "p", "name": self.project, "entity": {"id": "e", "name": "tester"}}
        bucket = {"id": f"id-{self.name}", "name": self.name, "project": project, "wandbConfig": '{"t": 1}'}
        texts = {"config": json.dumps(self.config), "summaryMetrics": json.dumps(self.summary), "eventsTail": "[]"}
        counts = {"historyLineCount": len(self.lines), "eventsLineCount": 0, "logLineCount": 0}
        return {**bucket, **texts, **counts, "historyTail": json.dumps(self.lines[-1:])}

    def stream(self, request: dict[str, Any]) -> int:
        """Take one file-stream request; returns the HTTP status."""
        files = request.get("files", {})
        if history := files.get("wandb-history.jsonl"):
            first, lines = history["offset"], history["content"]
            self.requests.append((first, len(lines)))
            self.lines[first : first + len(lines)] = lines
        if output := files.get("output.log"):
            self.console |= enumerate(output["content"], output["offset"])
        if summary := files.get("wandb-summary.json"):
            self.summary = json.loads(summary["content"][-1])
        if request.get("complete"):
            self.exit_code = request["exitcode"]
        return 200


class WandbServer(ThreadingHTTPServer):
    """Runs by their id; `refuses_history` makes the file stream fail for good."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.runs: dict[str, ServedRun] = {}
        self.refuses_history = False
        self.artifacts: list[dict[str, Any]] = []

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """The `data` of a GraphQL answer to `query` with the variables `given`."""
        match re.findall(r"(?:query|mutation)\s+(\w+)", query):
            case ["RunResumeStatus"]:
                run = self.runs.get(given["name"])
                return {"model": {"name": given["project"], "bucket": run and run.bucket()}}
            case ["UpsertBucket"]:
                name = given.get("name") or given["id"].removeprefix("id-")
                run = self.runs.setdefault(name, ServedRun(name, given.get("project") or ""))
                run.upserted |= {key: value for key, value in given.items() if value is not None}
                return {"upsertBucket": {"bucket": run.bucket(), "inserted": False}}
            case ["CreateRunFiles"]:
                urls = [{"name": name, "uploadUrl": f"{self.url}/{given['run']}/{name}"} for name in given["files"]]
                return {"createRunFiles": {"runID": f"id-{given['run']}", "uploadHeaders": [], "files": urls}}
            case ["CreateArtifact"]:
                self.artifacts.append(given.get("input", given))
        return {"viewer": VIEWER, "serverInfo": {"features": []}, "project": None, "createArtifact": ARTIFACT}


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client's process ends with connections open
            super().handle_one_request()

    def do_POST(self) -> None:
        status, value, path = 404, {}, self.path[1:].split("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/graphql":
            request = json.loads(body)
            status, value = 200, {"data": self.server.answer(request["query"], request.get("variables") or {})}
        elif path[-1] == "file_stream" and not self.server.refuses_history:
            status = self.server.runs[path[-2]].stream(json.loads(body))
        elif self.command == "PUT":
            status, self.server.runs[path[0]].files["/".join(path[1:])] = 200, body
        self.send_response(status)
        self.send_header("Content-Length", str(len(json.dumps(value))))
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    do_PUT = do_GET = do_POST  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        """Nothing."""
