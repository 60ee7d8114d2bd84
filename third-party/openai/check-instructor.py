# Asks for structured output as the library does by default: it names the tool to call.
import instructor
from openai import OpenAI
from pydantic import BaseModel


class Place(BaseModel):
    city: str


messages = [{"role": "user", "content": "Which city?"}]
client = instructor.from_openai(OpenAI(max_retries=0), mode=instructor.Mode.TOOLS)
place = client.chat.completions.create(model="default", messages=messages, response_model=Place)
assert place.city == "Bern"
print("instructor: structured output")
