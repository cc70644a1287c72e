"""The official Python SDK's client as the host of a team: host.py stdio|http|raw legacy|2026-07-28 PROGRAM"""

import json
import subprocess
import sys
import tempfile
import time

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

TRANSPORT, MODE, PROGRAM = sys.argv[1:]
STEPS = [
    "mcp calls researcher",
    "researcher asks its model, turn 1",
    "researcher has its model's reply",
    "researcher calls writer",
    "writer asks its model, turn 1",
    "writer has its model's reply",
    "writer answers researcher",
    "researcher asks its model, turn 2",
    "researcher has its model's reply",
    "researcher answers mcp",
]


class Log:
    """What the server says on standard error."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile("w+")

    def lines(self):
        with open(self.file.name) as file:
            return file.read().splitlines()

    async def count(self, word, times):
        """Waits until the word was said so many times."""
        with anyio.fail_after(10):
            while self.lines().count(word) < times:
                await anyio.sleep(0.01)


def text(result):
    assert not result.is_error, result
    return result.content[0].text


async def lists_and_calls(client):
    tools = {tool.title: tool for tool in (await client.list_tools()).tools}
    names = ["researcher", "writer", "waiter", "broken", "attendee", "작가", "recruiter"]
    assert list(tools) == names, tools
    assert tools["researcher"].description == "Finds facts."
    assert tools["researcher"].input_schema["required"] == ["message"]
    assert text(await client.call_tool(tools["작가"].name, {"message": "누구세요?"})) == "안녕하세요"

    steps = []

    async def told(progress, total, message):
        steps.append((progress, message))

    assert text(await client.call_tool("researcher", {"message": "?"}, progress_callback=told)) == "A report."
    with anyio.fail_after(10):
        while len(steps) < len(STEPS):
            await anyio.sleep(0.01)
    assert sorted(steps) == [(place + 1, step) for place, step in enumerate(STEPS)], steps

    failed = await client.call_tool("broken", {"message": "?"})
    assert failed.is_error and "out of order" in failed.content[0].text, failed
    refused = await client.call_tool("writer", {})
    assert refused.is_error and "missing required argument `message`" in refused.content[0].text, refused
    try:
        await client.call_tool("nobody", {"message": "?"})
    except MCPError as error:
        assert error.error.code == -32602 and "unknown tool `nobody`" in error.error.message, error
    else:
        raise AssertionError("nobody has that name")


async def cancels(client, log):
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "waiter", {"message": "?"})
        await log.count("started", 1)
        group.cancel_scope.cancel()
    await log.count("dropped", 1)

    try:
        await client.call_tool("waiter", {"message": "?"}, read_timeout_seconds=0.5)
    except (MCPError, TimeoutError):
        pass
    else:
        raise AssertionError("nobody answers")
    await log.count("started", 2)
    await log.count("dropped", 2)
    assert text(await client.call_tool("writer", {"message": "?"})) == "A draft."


async def meets(client):
    """A meeting begins when a hundred have come."""
    answers = []

    async def attend():
        answers.append(text(await client.call_tool("attendee", {"message": "?"})))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(attend)
    assert answers == ["We met."] * 100


async def hears(client, changes):
    if MODE == "legacy":
        await client.call_tool("recruiter", {"message": "?"})
        with anyio.fail_after(10):
            while not changes:
                await anyio.sleep(0.01)
    else:
        async with client.listen(tools_list_changed=True) as subscription:
            await client.call_tool("recruiter", {"message": "?"})
            with anyio.fail_after(10):
                async for _ in subscription:
                    break
    assert (await client.list_tools(cache_mode="refresh")).tools[-1].name == "newcomer"


async def check(transport, log):
    changes = []

    async def handle(message):
        if type(message).__name__ == "ToolListChangedNotification":
            changes.append(message)

    async with anyio.create_task_group() as group:
        async with Client(transport, mode=MODE, message_handler=handle) as client:
            await lists_and_calls(client)
            await cancels(client, log)
            await meets(client)
            await hears(client, changes)

            async def wait():
                try:
                    await client.call_tool("waiter", {"message": "?"})
                except MCPError:
                    pass

            group.start_soon(wait)
            await log.count("started", 3)
        await log.count("dropped", 3)
        group.cancel_scope.cancel()


async def over_stdio():
    log = Log()
    server = StdioServerParameters(command=PROGRAM)
    await check(stdio_client(server, errlog=log.file), log)


async def over_http():
    log = Log()
    process = subprocess.Popen([PROGRAM, "127.0.0.1:0"], stderr=log.file)
    try:
        with anyio.fail_after(10):
            while not log.lines():
                await anyio.sleep(0.01)
        headers = {"Authorization": "Bearer s3cret"}
        async with httpx2.AsyncClient(headers=headers, timeout=30, limits=httpx2.Limits(max_connections=None)) as http:
            await check(streamable_http_client(log.lines()[0], http_client=http), log)
    finally:
        process.kill()


def raw():
    """Every line is a message; the program ends with its input, and takes a waiting call along."""
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    call = {"name": "waiter", "arguments": {"message": "?"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
        {"jsonrpc": "2.0", "id": 3, "method": "agents/dance"},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": call | {"name": "researcher"}},
        {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call},
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([PROGRAM], **pipes)
    process.stdin.write("\n".join(json.dumps(message) for message in messages) + "\nnot JSON\n[1]\n")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(5)]
    assert process.stderr.readline() == "started\n"
    begun = time.monotonic()
    process.stdin.close()
    answers += [json.loads(line) for line in process.stdout]
    process.wait(10)
    assert time.monotonic() - begun < 3, "the end of the input is the end"
    assert all(answer["jsonrpc"] == "2.0" for answer in answers), answers
    by_id = {answer.get("id"): answer for answer in answers}
    assert by_id[2]["result"] == {} and by_id[3]["error"]["code"] == -32601, answers
    assert by_id[4]["result"]["content"][0]["text"] == "A report.", answers


if TRANSPORT == "raw":
    raw()
else:
    anyio.run(over_stdio if TRANSPORT == "stdio" else over_http)
