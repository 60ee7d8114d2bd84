# Asks for structured output as the library does by default: it requires a call of one of its tools.
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel


class Place(BaseModel):
    city: str


for model in OpenAIChatModel("default"), OpenAIResponsesModel("default"):
    result = Agent(model, output_type=Place).run_sync("Which city?")
    assert result.output == Place(city="Bern")
    agent = Agent(model, output_type=Place)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        return f"20 degrees in {city}"

    assert agent.run_sync("Weather in Bern?").output == Place(city="Bern")
    print(f"pydantic-ai: structured output, {type(model).__name__}")
