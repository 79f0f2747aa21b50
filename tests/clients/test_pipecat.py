"""pipecat's OpenAISTTService over /v1/audio/transcriptions and OpenAIRealtimeSTTService over /v1/realtime, in its own pipeline."""
# packages: pipecat-ai[openai]
import asyncio
import os
import subprocess
import sys
import tempfile

from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")

import numpy
from pipecat.frames.frames import (
    EndFrame, ErrorFrame, InputAudioRawFrame, InterimTranscriptionFrame, ProposedUserStartedSpeakingFrame,
    ProposedUserStoppedSpeakingFrame, TranscriptionFrame, VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.stt import OpenAIRealtimeSTTService, OpenAISTTService

from trials import KEY, ROOT, SPEECH, URL, client, clip, equal, finish, trial, wav

RATE = 16000
FRAME = 2 * RATE // 50  # bytes of 20 ms
client("pipecat-ai")


class Listener(FrameProcessor):
    """The end of the pipeline: keeps what arrives."""

    def __init__(self):
        super().__init__()
        self.interim, self.final, self.errors, self.turns = [], [], [], []
        self.news = asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, InterimTranscriptionFrame):
            self.interim.append(frame.text)
        elif isinstance(frame, TranscriptionFrame):
            self.final.append(frame.text)
            self.news.set()
        elif isinstance(frame, ErrorFrame):
            self.errors.append(frame.error)
        elif isinstance(frame, (ProposedUserStartedSpeakingFrame, ProposedUserStoppedSpeakingFrame)):
            self.turns.append(type(frame).__name__)
        await self.push_frame(frame, direction)


async def hear(make, turns, paced=False):
    """Plays the turns' samples to a service, with the local voice activity frames of a pipeline."""
    try:
        from pipecat.pipeline.worker import PipelineParams, PipelineWorker as Task
        from pipecat.workers.runner import WorkerRunner as Runner
    except ImportError:
        from pipecat.pipeline.task import PipelineParams, PipelineTask as Task
        from pipecat.pipeline.runner import PipelineRunner as Runner
    from pipecat.pipeline.pipeline import Pipeline

    service, listener = make(), Listener()
    task = Task(Pipeline([service, listener]), params=PipelineParams(audio_in_sample_rate=RATE))
    errors = listener.errors

    @service.event_handler("on_connection_error")
    async def _(_, error):
        errors.append(str(error))

    async def speak():
        if isinstance(service, OpenAIRealtimeSTTService):
            while not service._session_ready:
                await asyncio.sleep(0.01)
        for samples, silent in turns:
            if not silent:
                await task.queue_frame(VADUserStartedSpeakingFrame())
            for at in range(0, len(samples), FRAME):
                await task.queue_frame(InputAudioRawFrame(samples[at:at + FRAME], RATE, 1))
                if paced:
                    await asyncio.sleep(0.02)
            if silent:
                continue
            listener.news.clear()
            await task.queue_frame(VADUserStoppedSpeakingFrame())
            if not paced:
                await asyncio.wait_for(listener.news.wait(), 10)
        if paced:
            await asyncio.wait_for(listener.news.wait(), 10)
        await task.queue_frame(EndFrame())

    runner = Runner(handle_sigint=False)
    await asyncio.wait_for(asyncio.gather(runner.run(task), speak()), 20)
    equal(errors, [])
    return listener


def silence(seconds):
    """A quiet room."""
    noise = numpy.random.default_rng(1).normal(0, 3, int(seconds * RATE))
    return noise.astype("<i2").tobytes()


def realtime(**more):
    return lambda: OpenAIRealtimeSTTService(
        api_key=KEY, base_url=URL.replace("http", "ws", 1) + "/v1/realtime",
        settings=OpenAIRealtimeSTTService.Settings(model=SPEECH), **more)


@trial("OpenAIRealtimeSTTService, turns by the pipeline")
def _():
    clips = [clip(i) for i in range(3)]
    heard = asyncio.run(hear(realtime(), [(samples, False) for samples, _ in clips]))
    equal([text.strip() for text in heard.final], [words for _, words in clips])
    assert heard.interim
    return f"{len(heard.interim)} interim frames"


@trial("OpenAIRealtimeSTTService, server_vad")
def _():
    samples, words = clip(0)
    turns = [(silence(0.5), True), (samples, True), (silence(1.5), True)]
    heard = asyncio.run(hear(realtime(turn_detection={"type": "server_vad"}), turns, paced=True))
    equal([text.strip() for text in heard.final], [words])
    equal(heard.turns[:2], ["ProposedUserStartedSpeakingFrame", "ProposedUserStoppedSpeakingFrame"])


@trial("OpenAISTTService")
def _():
    samples, words = clip(0)
    heard = asyncio.run(hear(lambda: OpenAISTTService(
        api_key=KEY, base_url=URL + "/v1", settings=OpenAISTTService.Settings(model=SPEECH)), [(samples, False)]))
    equal([text.strip() for text in heard.final], [words])


@trial("examples/clients/pipecat_dictation.py")
def _():
    samples, words = clip(0)
    with tempfile.NamedTemporaryFile(suffix=".wav") as f:
        f.write(wav(samples))
        f.flush()
        done = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "clients", "pipecat_dictation.py"), f.name, SPEECH,
                               URL.replace("http", "ws", 1)], capture_output=True, text=True, timeout=60)
    assert words in done.stdout.splitlines(), done.stdout + done.stderr[-300:]


finish()
