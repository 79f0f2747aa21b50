"""pipecat's pipeline hears a WAV file (16 bits, mono) as if it were spoken now, and prints words as they become certain.

    reel serve demo-speech &
    pip install "pipecat-ai[openai]"
    python pipecat_dictation.py SPOKEN.wav [demo-speech] [ws://127.0.0.1:8080]
"""
import asyncio
import sys
import wave

from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")

from pipecat.frames.frames import EndFrame, InputAudioRawFrame, InterimTranscriptionFrame, TranscriptionFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.workers.runner import WorkerRunner

path = sys.argv[1]
model = sys.argv[2] if len(sys.argv) > 2 else "demo-speech"
url = sys.argv[3] if len(sys.argv) > 3 else "ws://127.0.0.1:8080"


class Printer(FrameProcessor):
    def __init__(self):
        super().__init__()
        self.heard = asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, InterimTranscriptionFrame):
            print("...", frame.text)
        elif isinstance(frame, TranscriptionFrame):
            print(frame.text.strip(), flush=True)
            self.heard.set()
        await self.push_frame(frame, direction)


async def main():
    with wave.open(path) as f:
        rate, samples = f.getframerate(), f.readframes(f.getnframes())
    service = OpenAIRealtimeSTTService(
        api_key="none", base_url=url + "/v1/realtime", turn_detection={"type": "server_vad"},
        settings=OpenAIRealtimeSTTService.Settings(model=model))
    printer = Printer()
    worker = PipelineWorker(Pipeline([service, printer]), params=PipelineParams(audio_in_sample_rate=rate))

    async def speak():
        while not service._session_ready:
            await asyncio.sleep(0.01)
        step = rate // 50 * 2  # 20 ms
        sound = b"\0" * rate + samples + b"\0" * 3 * rate  # silence tells the server where speech begins and ends
        for at in range(0, len(sound), step):
            await worker.queue_frame(InputAudioRawFrame(sound[at:at + step], rate, 1))
            await asyncio.sleep(0.02)
        await asyncio.wait_for(printer.heard.wait(), 20)
        await worker.queue_frame(EndFrame())

    await asyncio.gather(WorkerRunner(handle_sigint=False).run(worker), speak())


asyncio.run(main())
