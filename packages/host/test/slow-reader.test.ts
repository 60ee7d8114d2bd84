import { once } from 'node:events';
import type { Socket } from 'node:net';
import { expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { readSlowly } from './support/read-slowly.js';
import { join, openSession, type SseStream, stream } from './support/stream.js';
import { usedMemory } from './support/used-memory.js';

const READERS = 8;
const PIECE = 'x'.repeat(4000);
const PIECES = 4000;
const ANSWER_MB = (PIECE.length * PIECES) / 1024 ** 2;

const test = useControlledHost({
  env: { STREAM_STALL_SECONDS: '1', TURN_MAX_CHARACTERS: '100000000' },
});

/** Takes all that still comes. */
async function drain(socket: Socket): Promise<number> {
  let length = 0;
  socket.on('data', (chunk) => {
    length += chunk.length;
  });
  await once(socket, 'close');
  return length;
}

/** Streams one long answer to slow readers; returns how much memory has grown. */
async function longAnswer(slowReaders: number) {
  const before = usedMemory();
  const live: SseStream = await stream(test.alice, await openSession(test.alice), {
    message: 'at length',
  });
  const turn = await test.model.next();
  const slow: Socket[] = [];
  for (let i = 0; i < slowReaders; i++)
    slow.push(await readSlowly(test.alice, `/runs/${live.runId}`));
  for (let i = 0; i < PIECES; i++) turn.say(PIECE);
  turn.finish();
  await live.toEnd();
  return { live, slow, grownMb: usedMemory() - before };
}

it('a slow reader of GET /runs/:runId costs no memory, is disconnected, and can continue later', {
  timeout: 120_000,
}, async () => {
  const { grownMb: baseline } = await longAnswer(0);
  const { live, slow, grownMb } = await longAnswer(READERS);
  // If the host kept the answer for each of them, it would be all of it times their number.
  expect(grownMb - baseline).toBeLessThan((ANSWER_MB * READERS) / 2);
  const dropped = () =>
    test.host.log.filter(({ msg }) => String(msg).startsWith('request aborted'));
  await expect.poll(() => dropped().length).toBe(READERS);
  const received = await Promise.all(slow.map(drain));
  for (const length of received) expect(length).toBeLessThan(PIECES * PIECE.length);
  const again = await join(test.alice, live.runId, 0);
  await again.toEnd();
  expect(again.text.length).toBe(PIECES * PIECE.length);
  expect(again.frames.length).toBe(live.frames.length);
});
