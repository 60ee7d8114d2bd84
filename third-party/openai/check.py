# Uses the published client for Python as its documentation shows; prints one line per check.
import json
import time

from openai import AuthenticationError, NotFoundError, OpenAI

client = OpenAI(max_retries=0)
messages = [{"role": "user", "content": "Hello"}]
tool = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def passed(name):
    print(f"openai for Python: {name}")


assert "default" in [model.id for model in client.models.list()]
passed("models")

completion = client.chat.completions.create(model="default", messages=messages)
assert completion.choices[0].message.content == "You said: Hello"
assert completion.usage.total_tokens > 0
passed("chat")

stream = client.chat.completions.create(model="default", messages=messages, stream=True)
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
assert text == "You said: Hello"
passed("chat, streaming")

asked = [{"role": "user", "content": "Weather in Bern?"}]
tools = [{"type": "function", "function": tool}]
choice = client.chat.completions.create(model="default", messages=asked, tools=tools).choices[0]
assert choice.finish_reason == "tool_calls"
call = choice.message.tool_calls[0]
assert json.loads(call.function.arguments) == {"city": "Bern"}
result = {"role": "tool", "tool_call_id": call.id, "content": "20 degrees"}
answered = client.chat.completions.create(
    model="default", messages=[*asked, choice.message, result], tools=tools
)
assert answered.choices[0].message.content == "The tool said: 20 degrees"
passed("chat, tools")

place = {"type": "function", "function": {**tool, "name": "find_place"}}
for wanted in "required", {"type": "function", "function": {"name": "find_place"}}:
    forced = client.chat.completions.create(
        model="default", messages=messages, tools=[place], tool_choice=wanted
    )
    assert forced.choices[0].message.tool_calls[0].function.name == "find_place"
passed("chat, a required tool")

try:
    client.chat.completions.create(model="no-such", messages=messages)
    raise AssertionError("no error")
except NotFoundError:
    pass
try:
    OpenAI(api_key="sk-unknown", max_retries=0).models.list()
    raise AssertionError("no error")
except AuthenticationError:
    passed("errors")

first = client.responses.create(model="default", input="Hello")
assert first.output_text == "You said: Hello"
following = client.responses.create(
    model="default", input="Again", previous_response_id=first.id
)
assert following.output_text == "You said: Again"
assert client.responses.retrieve(first.id).output_text == "You said: Hello"
client.responses.delete(first.id)
passed("responses")

with client.responses.stream(model="default", input="Hello") as events:
    for _ in events:
        pass
    assert events.get_final_response().output_text == "You said: Hello"
passed("responses, streaming")

response = client.responses.create(model="default", input="Hello", background=True)
while response.status in ("queued", "in_progress"):
    time.sleep(0.1)
    response = client.responses.retrieve(response.id)
assert response.output_text == "You said: Hello"
slow = client.responses.create(model="default", input="Wait", background=True)
assert client.responses.cancel(slow.id).status == "cancelled"
passed("responses, background and cancel")
