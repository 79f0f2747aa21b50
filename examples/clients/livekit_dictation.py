"""LiveKit's speech-to-text class over /v1/realtime: a WAV file (16 bits, mono), as if it were spoken now.

    reel serve demo-speech &
    pip install livekit-agents livekit-plugins-openai
    python livekit_dictation.py SPOKEN.wav [demo-speech] [http://127.0.0.1:8080]

In an agent it is AgentSession(stt=openai.STT(...)) with the same arguments; the room's worker brings the HTTP session.
"""
import asyncio
import sys
import wave

from livekit import rtc
from livekit.agents import stt, utils
from livekit.plugins import openai

path = sys.argv[1]
model = sys.argv[2] if len(sys.argv) > 2 else "demo-speech"
url = sys.argv[3] if len(sys.argv) > 3 else "http://127.0.0.1:8080"


async def main():
    with wave.open(path) as f:
        rate, samples = f.getframerate(), f.readframes(f.getnframes())
    hears = openai.STT(model=model, base_url=url + "/v1", api_key="none", use_realtime=True)
    async with utils.http_context.open():
        stream = hears.stream()

        async def speak():
            step = rate // 50 * 2  # 20 ms
            sound = b"\0" * rate + samples + b"\0" * 3 * rate  # silence tells the server where speech begins and ends
            for at in range(0, len(sound) - step + 1, step):
                stream.push_frame(rtc.AudioFrame(sound[at:at + step], rate, 1, step // 2))
                await asyncio.sleep(0.02)

        speaking = asyncio.create_task(speak())
        async for event in stream:
            text = event.alternatives[0].text.strip() if event.alternatives else ""
            if event.type == stt.SpeechEventType.INTERIM_TRANSCRIPT:
                print("...", text)
            elif event.type == stt.SpeechEventType.FINAL_TRANSCRIPT and text:
                print(text, flush=True)
                break
        await speaking
        await stream.aclose()


asyncio.run(main())
