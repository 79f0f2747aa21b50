"""LlamaIndex over the server: a chat, an answer as it is made, and a question about a text file's parts.

    reel serve MODEL &
    pip install llama-index-llms-openai-like
    python llama_index_chat.py MODEL FILE.txt [http://127.0.0.1:8080]
"""
import sys

from llama_index.core.llms import ChatMessage
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.openai_like import OpenAILike

model, path = sys.argv[1:3]
url = sys.argv[3] if len(sys.argv) > 3 else "http://127.0.0.1:8080"
llm = OpenAILike(model=model, api_base=url + "/v1", api_key="none", is_chat_model=True, context_window=1024, max_tokens=48, temperature=0)

print(llm.chat([ChatMessage(role="user", content="Who are you?")]).message.content)
for piece in llm.stream_chat([ChatMessage(role="user", content="Who was I?")]):
    print(piece.delta, end="", flush=True)
print()

# What a retriever would find: here each paragraph of the file.
with open(path, encoding="utf-8") as f:
    nodes = [NodeWithScore(node=TextNode(text=part), score=1.0) for part in f.read().split("\n\n") if part.strip()]
ask = get_response_synthesizer(llm=llm, response_mode="compact")
print(ask.synthesize("What is this about?", nodes=nodes[:3]))
