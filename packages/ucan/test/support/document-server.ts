import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';

interface DocumentServer {
  readonly port: number;
  readonly url: string;
  /** `METHOD path body` of each request, in order. */
  readonly requests: readonly string[];
}

export type Answer = (response: ServerResponse, request: IncomingMessage) => void;

/** Serves on loopback until the test ends. */
export async function serveDocuments(answer: Answer): Promise<DocumentServer> {
  const requests: string[] = [];
  const server = createServer(async (request, response) => {
    requests.push(`${request.method} ${request.url} ${await text(request)}`.trim());
    answer(response, request);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  return { port, url: `http://127.0.0.1:${port}`, requests };
}

/** Answers with JSON. */
export function json(value: unknown, status = 200): Answer {
  return (response) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  };
}

/** Answers that a broken or hostile server may give, and the error each must end in. */
export const hostileAnswers: readonly (readonly [string, Answer, string])[] = [
  ['300 KB', (response) => response.end(`"${'x'.repeat(300_000)}"`), 'did_invalid'],
  ['endless', pourForever, 'did_invalid'],
  ['a closed connection', (response) => response.destroy(), 'did_unavailable'],
  ['a redirect', redirect, 'did_unavailable'],
  ['a 304', json({}, 304), 'did_unavailable'],
  ['a 500', json({ code: 13, message: 'boom' }, 500), 'did_unavailable'],
  ['a 500 with a deep message', json({ message: nested(1000) }, 500), 'did_unavailable'],
  ['a 500 in HTML', (response) => response.writeHead(500).end('<html>'), 'did_unavailable'],
  ['a 429', json({}, 429), 'did_unavailable'],
  ['no JSON', (response) => response.end('<html>'), 'did_invalid'],
  ['broken UTF-8', (response) => response.end(Buffer.from('2280ff22', 'hex')), 'did_invalid'],
  ['nothing', (response) => response.end(), 'did_invalid'],
  ['deep JSON', (response) => response.end(`${'['.repeat(1e5)}${']'.repeat(1e5)}`), 'did_invalid'],
  ['null', json(null), 'did_invalid'],
  ['a number', json(7), 'did_invalid'],
  ['an empty object', json({}), 'did_invalid'],
  ['an array', json([]), 'did_invalid'],
];

/** Answers that never end; what asks for them needs a short time limit. */
export const slowAnswers: readonly (readonly [string, Answer])[] = [
  ['silence', () => undefined],
  ['half an answer', (response) => response.writeHead(200).write('{"id":')],
];

function redirect(response: ServerResponse, request: IncomingMessage): void {
  const isTarget = request.url === '/elsewhere';
  response.writeHead(isTarget ? 404 : 302, { location: '/elsewhere' }).end('{}');
}

function nested(depth: number): unknown {
  let value: unknown = 'did document not found';
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}

function pourForever(response: ServerResponse): void {
  const pour = () => {
    while (!response.destroyed && response.write('['.repeat(65_536)));
  };
  response.on('drain', pour);
  pour();
}
