# Asks for structured output with a tool that the model has to call.
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Place(BaseModel):
    city: str


for uses_responses in False, True:
    model = ChatOpenAI(model="default", max_retries=0, use_responses_api=uses_responses)
    structured = model.with_structured_output(Place, method="function_calling")
    assert structured.invoke("Which city?").city == "Bern"
    print(f"langchain-openai: structured output, responses: {uses_responses}")
