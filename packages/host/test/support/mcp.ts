import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { acceptedContent, inputRequired, type McpServer } from '@modelcontextprotocol/server';
import type { SharedKey } from '@sibyl/plugin-kit';
import { expect } from 'vitest';
import { z } from 'zod';
import { testPlugin } from './plugin.js';

export const MODERN = '2026-07-28';
export const LEGACY = '2025-11-25';

const City = z.object({ city: z.string() });

/** What the MCP server shares with other plugins. */
interface SharedServer {
  extend(extension: (server: McpServer, caller: { readonly did: string }) => void): void;
  reportUpdate(update: { readonly owner: string; readonly uri: string }): void;
}

/** Adds to the MCP server: tools that ask the client, one that closes its stream and waits, and a resource. */
export const createAsking = (key: SharedKey<SharedServer>) =>
  testPlugin('asking', {
    dependsOn: ['mcp-server'],
    setup: ({ shared }) => {
      const server = shared.require(key);
      server.extend((mcp, { did }) => {
        const schema = {
          type: 'object' as const,
          properties: { city: { type: 'string' as const } },
          required: ['city'],
        };
        mcp.registerTool('book', { description: 'Books' }, ({ mcpReq }) => {
          const city = acceptedContent(mcpReq.inputResponses, 'city', City)?.city;
          if (city !== undefined) return say(`Booked in ${city}`);
          return inputRequired({
            inputRequests: {
              city: inputRequired.elicit({ message: 'Which city?', requestedSchema: schema }),
            },
          });
        });
        mcp.registerTool('guess', { description: 'Samples' }, async ({ mcpReq }) => {
          const messages = [{ role: 'user' as const, content: text('Guess') }];
          const { content } = await mcpReq.requestSampling({ messages, maxTokens: 10 });
          return say(JSON.stringify(content));
        });
        mcp.registerTool('wait', { description: 'Waits' }, async ({ mcpReq, http }) => {
          http?.closeSSE?.();
          await new Promise((resolve) => {
            mcpReq.signal.addEventListener('abort', resolve, { once: true });
            waiting.push(resolve);
          });
          return say('waited');
        });
        mcp.registerTool('change', { description: 'Changes the note' }, () => {
          server.reportUpdate({ owner: did, uri: 'notes://mine' });
          return say('changed');
        });
        mcp.registerResource('mine', 'notes://mine', {}, ({ href: uri }) => ({
          contents: [{ uri, text: 'Buy milk' }],
        }));
      });
    },
  });

/** Ends a call of the tool `wait`. */
export const waiting: ((value?: unknown) => void)[] = [];

const text = (said: string) => ({ type: 'text', text: said }) as const;
const say = (said: string) => ({ content: [text(said)] });

interface McpOptions {
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly version?: string;
  /** Where everything but requests is sent: answers, notifications and streams. */
  readonly otherUrl?: string;
  readonly capabilities?: object;
}

/** A published client that answers every question with Bern. */
export async function connectMcp(options: McpOptions): Promise<Client> {
  const { url, headers, version = MODERN, otherUrl = url, capabilities = {} } = options;
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    { versionNegotiation: { mode: version === MODERN ? 'auto' : 'legacy' }, capabilities },
  );
  if ('elicitation' in capabilities)
    client.setRequestHandler('elicitation/create', async () => {
      return { action: 'accept', content: { city: 'Bern' } };
    });
  if ('sampling' in capabilities)
    client.setRequestHandler('sampling/createMessage', async () => {
      return { role: 'assistant', content: text('Seven'), model: 'test' };
    });
  const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
    requestInit: { headers },
    fetch: (_, init) => fetch(`${isRequest(init?.body) ? url : otherUrl}/mcp`, init),
  });
  await client.connect(transport);
  expect(client.getNegotiatedProtocolVersion()).toBe(version);
  return client;
}

function isRequest(body: unknown): boolean {
  if (typeof body !== 'string') return false;
  const message = JSON.parse(body);
  return 'method' in message && 'id' in message;
}

/** A client of 2025-11-25 that is not a library, so that a test sees every event and can lose its connection. */
export class RawMcpClient {
  session = '';

  constructor(
    readonly url: string,
    readonly headers: Record<string, string>,
  ) {}

  async initialize(capabilities: object = {}): Promise<this> {
    const clientInfo = { name: 'raw', version: '1' };
    const params = { protocolVersion: LEGACY, capabilities, clientInfo };
    const reply = await this.post({ id: 0, method: 'initialize', params });
    this.session = reply.headers.get('mcp-session-id') ?? '';
    await reply.text();
    return this;
  }

  /** The same session at another host, or with other credentials. */
  at(url: string, headers = this.headers): RawMcpClient {
    return Object.assign(new RawMcpClient(url, headers), { session: this.session });
  }

  post(message: object, signal: AbortSignal | null = null): Promise<Response> {
    return fetch(`${this.url}/mcp`, {
      method: 'POST',
      headers: { ...this.toHeaders(), 'content-type': 'application/json' },
      body: JSON.stringify(Array.isArray(message) ? message : { jsonrpc: '2.0', ...message }),
      signal,
    });
  }

  call(id: number, name: string, args: object = {}, signal?: AbortSignal): Promise<Response> {
    const params = { name, arguments: args, _meta: { progressToken: `p${id}` } };
    return this.post({ id, method: 'tools/call', params }, signal);
  }

  open(lastEventId?: string): Promise<Response> {
    const last = lastEventId === undefined ? undefined : { 'last-event-id': lastEventId };
    return fetch(`${this.url}/mcp`, { headers: { ...this.toHeaders(), ...last } });
  }

  private toHeaders(): Record<string, string> {
    return {
      ...this.headers,
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': LEGACY,
      ...(this.session && { 'mcp-session-id': this.session }),
    };
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
export type RawEvent = { readonly id: string; readonly message: any };

/** The events of a response; an event without data has no message. */
export async function* readEvents({ body }: Response): AsyncGenerator<RawEvent> {
  let rest = '';
  for await (const chunk of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const events = (rest + chunk).split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(event)?.[1];
      const id = field('id');
      const data = field('data');
      if (id !== undefined) yield { id, message: data ? JSON.parse(data) : undefined };
    }
  }
}

/** The first event that reports this progress; the others stay to be read. */
export async function findProgress(
  events: AsyncGenerator<RawEvent>,
  text: string,
): Promise<RawEvent> {
  for (;;) {
    const { done, value } = await events.next();
    if (done) throw new Error(`The stream ended without ${text}`);
    if (value.message?.params?.message === text) return value;
  }
}
