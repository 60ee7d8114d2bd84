"""Receives the events of a turn with handlers of one argument: argv is the address of a host, a token and a session."""
import sys
import threading

import requests
import socketio

url, token, session_id = sys.argv[1:]
connected, finished = threading.Event(), threading.Event()
client = socketio.Client()


@client.on("connected")
def on_connected(data):
    assert data["sessionId"] == session_id, data
    connected.set()


@client.on("tool_call")
def on_tool_call(data):
    if data["payload"]["status"] == "done":
        finished.set()


client.connect(
    f"{url}?sessionId={session_id}",
    auth={"invocation": token, "positions": False},
    transports=["websocket"],
)
assert connected.wait(60), "not connected"
reply = requests.post(
    f"{url}/messages/{session_id}",
    json={"message": "Remember that I work on soil carbon"},
    headers={"Authorization": f"Bearer {token}", "X-Auth-Type": "ucan"},
    timeout=120,
)
assert reply.status_code == 200, reply.text
assert finished.wait(60), "no event of the tool"
client.disconnect()
print("python-socketio: ok")
