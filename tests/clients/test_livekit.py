"""LiveKit's STT over /v1/audio/transcriptions, and over /v1/realtime with server_vad; its LLM over chat; and the example that uses it."""
# packages: livekit-agents livekit-plugins-openai
import asyncio
import os
import subprocess
import sys
import tempfile

from livekit import rtc
from livekit.agents import llm, stt, utils
from livekit.plugins import openai

from trials import KEY, MODEL, ROOT, SPEECH, URL, WHAT, answer_of, client, clip, equal, finish, trial, wav

RATE = 16000
client("livekit-plugins-openai")


async def hear(samples):
    """What the STT makes of samples that are spoken now: interim texts and the first final one."""
    heard = openai.STT(model=SPEECH, base_url=URL + "/v1", api_key=KEY, use_realtime=True)
    interim, turns = [], []
    async with utils.http_context.open():
        stream = heard.stream()

        async def speak():
            sound = b"\0" * RATE + samples + b"\0" * 3 * RATE
            for at in range(0, len(sound) - 640 + 1, 640):
                stream.push_frame(rtc.AudioFrame(sound[at:at + 640], RATE, 1, 320))
                await asyncio.sleep(0.02)

        speaking = asyncio.create_task(speak())
        async for event in stream:
            turns.append(event.type)
            if event.type == stt.SpeechEventType.INTERIM_TRANSCRIPT:
                interim.append(event.alternatives[0].text)
            elif event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                await speaking
                await stream.aclose()
                return interim, event.alternatives[0].text, turns


@trial("STT over /v1/realtime, server_vad")
def _():
    samples, words = clip(0)
    interim, text, turns = asyncio.run(asyncio.wait_for(hear(samples), 60))
    equal(text.strip(), words)
    assert interim and words.startswith(interim[0].strip()), interim
    return f"{len(interim)} interim events"


@trial("STT over /v1/audio/transcriptions")
def _():
    samples, words = clip(1)

    async def go():
        heard = openai.STT(model=SPEECH, base_url=URL + "/v1", api_key=KEY)
        return await heard.recognize(rtc.AudioFrame(samples, RATE, 1, len(samples) // 2))
    equal(asyncio.run(go()).alternatives[0].text.strip(), words)


@trial("LLM over chat, as a stream")
def _():
    async def go():
        context = llm.ChatContext.empty()
        context.add_message(role="user", content=WHAT[0]["content"])
        model = openai.LLM(model=MODEL, base_url=URL + "/v1", api_key=KEY, temperature=0, max_completion_tokens=12)
        text = ""
        async with model.chat(chat_ctx=context) as stream:
            async for chunk in stream:
                text += chunk.delta.content or "" if chunk.delta else ""
        return text
    equal(asyncio.run(go()), answer_of(WHAT, 12))


def example(name, *arguments):
    samples, words = clip(0)
    with tempfile.NamedTemporaryFile(suffix=".wav") as f:
        f.write(wav(samples))
        f.flush()
        done = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "clients", name), f.name, *arguments],
                              capture_output=True, text=True, timeout=60)
    assert words in done.stdout.splitlines(), done.stdout + done.stderr[-300:]


@trial("examples/clients/livekit_dictation.py")
def _():
    example("livekit_dictation.py", SPEECH, URL)


finish()
