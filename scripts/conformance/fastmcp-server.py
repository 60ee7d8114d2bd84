"""An MCP server that only users who signed in can use."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import ClientRegistrationOptions

port = int(sys.argv[1])
auth = InMemoryOAuthProvider(
    base_url=f"http://127.0.0.1:{port}",
    client_registration_options=ClientRegistrationOptions(enabled=True),
)
server = FastMCP("vault", auth=auth)


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
