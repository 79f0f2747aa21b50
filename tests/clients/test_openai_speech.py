"""openai-python: transcriptions and realtime sessions."""
# packages: openai[realtime]
import asyncio
import base64
import io

import openai

from trials import KEY, SPEECH, URL, client, clip, equal, finish, trial, wav

client("openai")
to = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
SAMPLES, WORDS = clip()


def transcribe(**more):
    file = io.BytesIO(wav(SAMPLES))
    file.name = "clip.wav"
    return to.audio.transcriptions.create(model=SPEECH, file=file, **more)


@trial("transcription")
def _():
    answer = transcribe(temperature=0, language="en")
    equal(answer.text, WORDS)


@trial("transcription, all formats")
def _():
    equal(transcribe(response_format="text").strip(), WORDS)
    verbose = transcribe(response_format="verbose_json")
    equal(verbose.text, WORDS)
    equal(" ".join(segment.text.strip() for segment in verbose.segments), WORDS)
    assert abs(verbose.duration - len(SAMPLES) / 32000) < 0.01, verbose.duration
    assert WORDS in transcribe(response_format="srt")
    assert transcribe(response_format="vtt").startswith("WEBVTT")


@trial("transcription, stream")
def _():
    events = list(transcribe(stream=True))
    equal("".join(event.delta for event in events if event.type == "transcript.text.delta"), WORDS)
    equal((events[-1].type, events[-1].text), ("transcript.text.done", WORDS))


@trial("transcription, no sound")
def _():
    try:
        to.audio.transcriptions.create(model=SPEECH, file=("clip.wav", b"not a recording"))
    except openai.BadRequestError as error:
        equal(error.param, "file")
    else:
        raise AssertionError("taken")


def at_24_khz(samples):
    """Each two samples become three, by the line between them."""
    values = [int.from_bytes(samples[i:i + 2], "little", signed=True) for i in range(0, len(samples), 2)] + [0, 0]
    out = []
    for i in range(0, len(samples) // 2, 2):
        a, b, c = values[i:i + 3]
        out += [a, (a + 2 * b) // 3, (2 * b + c) // 3]
    return b"".join(value.to_bytes(2, "little", signed=True) for value in out)


async def hear(turn_detection, sound):
    """The events until one is completed, and the error of a bad event."""
    heard = openai.AsyncOpenAI(base_url=URL + "/v1", api_key=KEY)
    events = []
    async with heard.realtime.connect(model=SPEECH, extra_query={"intent": "transcription"}) as connection:
        await connection.session.update(session={
            "type": "transcription",
            "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000},
                                "transcription": {"model": SPEECH, "language": "en"},
                                "turn_detection": turn_detection}}})
        for at in range(0, len(sound), 4800):
            await connection.input_audio_buffer.append(audio=base64.b64encode(sound[at:at + 4800]).decode())
        if turn_detection is None:
            await connection.input_audio_buffer.commit()
        async for event in connection:
            events.append(event)
            if event.type.endswith((".completed", ".failed")) or event.type == "error":
                return events


def check(events):
    kinds = [event.type for event in events]
    equal(kinds[0], "session.created")
    assert "session.updated" in kinds and "input_audio_buffer.committed" in kinds, kinds
    deltas = [event.delta for event in events if event.type.endswith("transcription.delta")]
    equal(events[-1].transcript.strip(), WORDS)
    equal("".join(deltas).strip(), WORDS)
    assert events[-1].usage is not None
    return kinds


@trial("realtime, turns by the client")
def _():
    check(asyncio.run(asyncio.wait_for(hear(None, at_24_khz(SAMPLES)), 30)))


@trial("realtime, server_vad")
def _():
    quiet = bytes(2 * 24000)
    kinds = check(asyncio.run(asyncio.wait_for(hear({"type": "server_vad"}, quiet + at_24_khz(SAMPLES) + 2 * quiet), 30)))
    assert kinds.index("input_audio_buffer.speech_started") < kinds.index("input_audio_buffer.speech_stopped")


finish()
