import type { BenchSession } from './hosts.ts';

/** A frame and when it arrived. */
interface ArrivedFrame {
  readonly id: number;
  readonly at: number;
  readonly runId: string;
}

/** Starts a streamed turn. */
export function startStream(
  url: string,
  { sessionId, headers }: BenchSession,
): Promise<AsyncGenerator<ArrivedFrame, void, void>> {
  return openStream(`${url}/messages/${sessionId}`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ message: 'What does the almanac say?', stream: true }),
  });
}

/** Reads the frames of a run. */
export function readFrames(
  address: string,
  { headers }: BenchSession,
): Promise<AsyncGenerator<ArrivedFrame, void, void>> {
  return openStream(address, { headers });
}

async function openStream(address: string, init: RequestInit) {
  const response = await fetch(address, init);
  if (!response.ok || !response.body)
    throw new Error(`${address}: ${response.status} ${await response.text()}`);
  return parseFrames(response.body, response.headers.get('x-run-id') ?? '');
}

async function* parseFrames(body: ReadableStream<Uint8Array>, runId: string) {
  const decoder = new TextDecoder();
  let text = '';
  try {
    for await (const chunk of body) {
      const at = performance.now();
      text += decoder.decode(chunk, { stream: true });
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const [, id] = /^id: (\d+)$/m.exec(block) ?? [];
        if (id) yield { id: Number(id), at, runId };
      }
    }
  } catch {
    // The host was killed, or the client left.
  }
}
