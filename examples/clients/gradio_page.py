"""A page of Gradio's for a model and, where one is served, dictation.

    reel serve MODEL demo-speech &
    pip install gradio openai
    python gradio_page.py MODEL [SPEECH_MODEL] [http://127.0.0.1:8080]
"""
import sys

import gradio
import openai

model = sys.argv[1]
speech = sys.argv[2] if len(sys.argv) > 2 else ""
url = sys.argv[3] if len(sys.argv) > 3 else "http://127.0.0.1:8080"
client = openai.OpenAI(base_url=url + "/v1", api_key="none")


def answer(message, history):
    said = [{"role": turn["role"], "content": turn["content"][0]["text"] if isinstance(turn["content"], list) else turn["content"]}
            for turn in history]
    text = ""
    for event in client.chat.completions.create(model=model, messages=[*said, {"role": "user", "content": message}], stream=True, max_tokens=256):
        text += event.choices[0].delta.content or "" if event.choices else ""
        yield text


def hear(path):
    with open(path, "rb") as f:
        return client.audio.transcriptions.create(model=speech, file=f).text


with gradio.Blocks(title="reel") as page:
    with gradio.Tab("Chat"):
        gradio.ChatInterface(answer, api_name="chat")
    if speech:
        with gradio.Tab("Dictation"):
            gradio.Interface(hear, gradio.Audio(type="filepath"), "text", api_name="hear")

if __name__ == "__main__":
    page.launch(server_name="127.0.0.1")
