import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import {
  type Message,
  SendMessageRequest,
  type StreamResponse,
  type Task,
  TaskState,
} from '@a2a-js/sdk';
import { type Client, ClientFactory, ClientFactoryOptions } from '@a2a-js/sdk/client';
import { defineTool } from '@sibyl/plugin-kit';
import { afterAll, beforeEach } from 'vitest';
import { createKey } from './access-key.js';
import { type ControlledHost, useControlledHost } from './controlled-host.js';
import { findFreePort } from './free-port.js';
import { testPlugin } from './plugin.js';

const tools = testPlugin('questions', {
  getTools: () => [
    defineTool({
      name: 'ask_city',
      description: 'Asks for a city.',
      inputSchema: { type: 'object' },
      run: async (_, { interrupt }) => ({
        city: await interrupt({
          kind: 'input_required',
          schema: { type: 'object', properties: { city: { type: 'string' } } },
          data: { question: 'Which city?' },
        }),
      }),
    }),
    defineTool({
      name: 'confirm',
      description: 'Asks for a confirmation.',
      inputSchema: { type: 'object' },
      run: async (_, { interrupt }) => ({
        sure: await interrupt({
          kind: 'confirmation',
          schema: { type: 'boolean' },
          data: { question: 'Are you sure?' },
        }),
      }),
    }),
    defineTool({
      name: 'pay',
      description: 'Pays.',
      inputSchema: { type: 'object' },
      needsApproval: true,
      run: () => 'paid',
    }),
  ],
});

/** A push notification. */
interface Received {
  readonly headers: IncomingHttpHeaders;
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly body: any;
}

export interface A2aHost extends ControlledHost {
  /** Its public address. */
  readonly page: string;
  /** An access key of Alice, new in each test as she is. */
  readonly key: string;
  readonly received: readonly Received[];
  /** Where push notifications are received. */
  readonly receiver: string;
  /** The published client, unmodified: headers are its own option. */
  connect(headers: Headers, binding?: string): Promise<TestClient>;
}

export interface TestClient {
  readonly client: Client;
  readonly options: { readonly serviceParameters: Headers };
}

/** A host with tools that ask their user, and a receiver of push notifications, during the surrounding file. */
export async function useA2aHost(): Promise<A2aHost> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    received.push({ headers: request.headers, body: await json(request) });
    response.writeHead(request.url === '/failing' ? 503 : 200).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  afterAll(() => void server.close());
  const receiver = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const port = await findFreePort();
  const page = `http://127.0.0.1:${port}`;
  const controlled = useControlledHost({
    plugins: [tools],
    env: {
      PORT: String(port),
      PUBLIC_URL: page,
      OUTGOING_ALLOW: receiver,
      A2A_DESCRIPTION: 'Knows the weather.',
    },
  });
  const connect = async (headers: Headers, binding = 'JSONRPC') => {
    const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
      preferredTransports: [binding],
    });
    const client = await new ClientFactory(options).createFromUrl(page);
    return { client, options: { serviceParameters: headers } };
  };
  const own = { page, key: '', received, receiver: `http://${receiver}`, connect };
  const host = Object.assign(controlled, own);
  beforeEach(async () => {
    host.key = (await createKey(controlled.alice)).key;
  });
  return host;
}

export type Headers = Record<string, string>;
export const bearer = (as: string): Headers => ({ authorization: `Bearer ${as}` });

export const say = (
  text: string,
  more: object = {},
  configuration: object = {},
): SendMessageRequest =>
  SendMessageRequest.fromJSON({
    message: {
      messageId: randomUUID(),
      role: 'ROLE_USER',
      parts: [{ text }],
      ...more,
    },
    configuration,
  });

export const send = async (
  { client, options }: TestClient,
  request: SendMessageRequest,
): Promise<Task> => {
  const result = await client.sendMessage(request, options);
  if ('messageId' in result) throw new Error('not a task');
  return result;
};

export const text = ({ artifacts }: Pick<Task, 'artifacts'>) =>
  artifacts
    .flatMap(({ parts }) => parts)
    .map(({ content }) => (content?.$case === 'text' ? content.value : ''))
    .join('');
export const state = ({ status }: Pick<Task, 'status'>) => TaskState[status?.state ?? 0];
export const said = (message: Message | undefined) =>
  (message?.parts ?? [])
    .map(({ content }) => (content?.$case === 'text' ? content.value : ''))
    .join('');

/** Reads a stream as clients do: what the task is after all events. */
export class Reader {
  task: Task | undefined;
  readonly states: string[] = [];
  readonly notes: string[] = [];
  answer = '';
  private readonly events: AsyncIterator<StreamResponse>;

  constructor(events: AsyncIterable<StreamResponse>) {
    this.events = events[Symbol.asyncIterator]();
  }

  async until(isEnough: () => boolean): Promise<this> {
    while (!isEnough()) if (!(await this.next())) throw new Error('The stream ended');
    return this;
  }

  async toEnd(): Promise<this> {
    while (await this.next());
    return this;
  }

  async leave(): Promise<void> {
    await this.events.return?.();
  }

  private async next(): Promise<boolean> {
    const { done, value } = await this.events.next();
    if (done) return false;
    const { payload } = value;
    if (payload?.$case === 'task') {
      this.task = payload.value;
      this.answer = text(payload.value);
      this.states.push(state(payload.value) ?? '');
    }
    if (payload?.$case === 'statusUpdate') {
      this.states.push(state(payload.value) ?? '');
      this.notes.push(said(payload.value.status?.message));
    }
    if (payload?.$case === 'artifactUpdate') {
      const { artifact, append } = payload.value;
      const more = text({ artifacts: artifact ? [artifact] : [] });
      this.answer = append ? this.answer + more : more;
    }
    return true;
  }
}

export const stream = ({ client, options }: TestClient, request: SendMessageRequest) =>
  new Reader(client.sendMessageStream(request, options));
export const get = ({ client, options }: TestClient, id: string) =>
  client.getTask({ tenant: '', id }, options);
