"""A conversation with LangChain: an answer as it is made, and several prompts at once.

    reel serve MODEL &
    pip install langchain-openai
    python langchain_chat.py MODEL [http://127.0.0.1:8080]
"""
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

model = sys.argv[1]
url = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8080"
chat = ChatOpenAI(model=model, base_url=url + "/v1", api_key="none", temperature=0, max_tokens=64)
prompt = ChatPromptTemplate.from_messages([("system", "You answer in one sentence."), ("user", "What is {thing}?")])
chain = prompt | chat | StrOutputParser()

for piece in chain.stream({"thing": "a tape reel"}):
    print(piece, end="", flush=True)
print()
for answer in chain.batch([{"thing": "a bobbin"}, {"thing": "a spool"}]):
    print("-", answer)
