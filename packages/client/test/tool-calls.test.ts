import { createSigner, type OracleClient } from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from '../../host/test/support/controlled-host.js';
import { createTestClient } from './support/client.js';
import { startNetwork } from './support/network.js';
import { read } from './support/reading.js';

const server = useControlledHost();
const signer = createSigner(generateSigner());
const clients: OracleClient[] = [];
afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});

function page(): OracleClient {
  const client = createTestClient(server.host, { signer });
  clients.push(client);
  return client;
}

async function begin() {
  const client = page();
  const { sessionId } = await client.sessions.create();
  return { client, sessionId };
}

/** Makes the model call a tool, and returns the result that it receives. */
async function callOnce(name: string, input: object): Promise<string> {
  (await server.model.next()).call({ name, input });
  const turn = await server.model.next();
  turn.finish();
  return turn.body.messages.at(-1).content;
}

const schema = z.object({ color: z.enum(['red', 'blue']), shade: z.string().default('dark') });
const paint = { name: 'paint', description: 'Paints the page', schema };

describe('addTool', () => {
  it('declares the tool, runs it with parsed arguments, and sends its result to the model', async () => {
    const { client, sessionId } = await begin();
    const painted: unknown[] = [];
    client.addTool({
      ...paint,
      run: ({ color, shade }, call) => {
        painted.push([`${shade} ${color}`, call.sessionId === sessionId]);
        return { painted: color };
      },
    });
    const reading = read(client.stream(sessionId, 'paint it red'));
    const first = await server.model.next();
    const declared = first.body.tools.map((tool: { function: object }) => tool.function);
    expect(declared).toContainEqual({
      name: 'paint',
      description: 'Paints the page',
      parameters: expect.objectContaining({
        properties: expect.objectContaining({ color: { type: 'string', enum: ['red', 'blue'] } }),
      }),
    });
    first.call({ name: 'paint', input: { color: 'red' } });
    const second = await server.model.next();
    expect(second.body.messages.at(-1).content).toContain('"painted":"red"');
    second.finish();
    await reading.ended;
    expect(painted).toEqual([['dark red', true]]);
    expect(reading.turn.calls).toMatchObject([
      { kind: 'browser-tool', name: 'paint', status: 'done', output: '{"painted":"red"}' },
    ]);
  });

  it('accepts a JSON Schema and works with messages.send', async () => {
    const { client, sessionId } = await begin();
    client.addTool({
      name: 'scroll',
      description: 'Scrolls the page',
      schema: { type: 'object', properties: { to: { type: 'number' } }, required: ['to'] },
      run: async ({ to }) => `scrolled to ${to}`,
    });
    const reply = client.messages.send(sessionId, 'scroll down');
    expect(await callOnce('scroll', { to: 7 })).toContain('scrolled to 7');
    await reply;
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('no paint left');
      },
      'no paint left',
    ],
    ['returns a value that JSON cannot represent', () => 1n, 'BigInt'],
    ['returns too much', () => 'x'.repeat(300_000), 'too large'],
  ])('sends an error to the model when run %s', async (_, run, expected) => {
    const { client, sessionId } = await begin();
    client.addTool({ ...paint, run });
    const reading = read(client.stream(sessionId, 'paint'));
    expect(await callOnce('paint', { color: 'blue' })).toContain(expected);
    await reading.ended;
    expect(reading.turn.calls).toMatchObject([{ status: 'error' }]);
  });

  it('does not run the tool with invalid arguments', async () => {
    const { client, sessionId } = await begin();
    const strict = z.object({ to: z.number().refine((to) => to % 2 === 0, 'must be even') });
    const run = () => {
      throw new Error('was run');
    };
    client.addTool({ name: 'step', description: 'Steps', schema: strict, run });
    const reading = read(client.stream(sessionId, 'step'));
    expect(await callOnce('step', { to: 3 })).toContain('to: must be even');
    await reading.ended;
  });

  it('sends the result again if the connection breaks while it is sent', async () => {
    const network = await startNetwork(server.host.url);
    onTestFinished(() => network.close());
    const client = createTestClient(network, { signer });
    clients.push(client);
    const { sessionId } = await client.sessions.create();
    let runs = 0;
    client.addTool({
      ...paint,
      run: () => {
        runs += 1;
        network.loseNext();
        return 'painted';
      },
    });
    const reading = read(client.stream(sessionId, 'paint'));
    expect(await callOnce('paint', { color: 'red' })).toContain('painted');
    await reading.ended;
    expect(runs).toBe(1);
  });

  it('stops declaring a tool that was removed', async () => {
    const { client, sessionId } = await begin();
    const names = async () => {
      const reading = read(client.stream(sessionId, 'go'));
      const turn = await server.model.next();
      turn.finish();
      await reading.ended;
      return (turn.body.tools ?? []).map(
        (tool: { function: { name: string } }) => tool.function.name,
      );
    };
    const remove = client.addTool({ ...paint, run: () => null });
    expect(await names()).toContain('paint');
    remove();
    expect(await names()).not.toContain('paint');
  });
});

describe('addAction', () => {
  it('runs the action and sends a component to the page', async () => {
    const { client, sessionId } = await begin();
    client.addAction({
      name: 'show_table',
      description: 'Shows a table',
      schema: z.object({ rows: z.array(z.string()) }),
      run: ({ rows }) => ({ shown: rows.length }),
      render: ({ args }) => args.rows.join(),
    });
    const reading = read(client.stream(sessionId, 'show'));
    expect(await callOnce('show_table', { rows: ['a', 'b'] })).toContain('"shown":2');
    await reading.ended;
    const { calls, components } = reading.turn;
    expect(calls).toMatchObject([{ kind: 'action', name: 'show_table', status: 'done' }]);
    expect(components).toMatchObject([{ componentName: 'show_table', args: { rows: ['a', 'b'] } }]);
    expect(
      client.action('show_table')?.render?.({
        toolCallId: '1',
        status: 'done',
        args: { rows: ['a', 'b'] } as never,
      }),
    ).toBe('a,b');
  });

  it('accepts an action that only renders', async () => {
    const { client, sessionId } = await begin();
    const render = () => 'a picture';
    client.addAction({ name: 'show', description: 'Shows', schema: {}, render });
    const reading = read(client.stream(sessionId, 'show'));
    expect(await callOnce('show', {})).toContain('"shown":true');
    await reading.ended;
  });
});

describe('tool calls with several open pages', () => {
  /** Two pages of one user; the first has sent a message that calls `paint`. */
  async function twoPages() {
    const { client: first, sessionId } = await begin();
    const second = page();
    const ran: string[] = [];
    const hold = Promise.withResolvers<string>();
    first.addTool({
      ...paint,
      run: () => {
        ran.push('first');
        return hold.promise;
      },
    });
    second.addTool({
      ...paint,
      run: () => {
        ran.push('second');
        return 'by the second';
      },
    });
    const stream = first.stream(sessionId, 'paint');
    await stream.next();
    const events = second.events(sessionId);
    await events.ready();
    return { first, second, sessionId, stream, events, ran, hold };
  }

  it('only the page that sent the message runs the call', async () => {
    const { second, sessionId, stream, ran, hold } = await twoPages();
    const following = read(second.resume(sessionId));
    const sent = read(stream);
    (await server.model.next()).call({ name: 'paint', input: { color: 'red' } });
    const isCalled = () => following.turn.calls.length;
    await expect.poll(isCalled).toBe(1);
    await expect.poll(() => ran).toEqual(['first']);
    hold.resolve('by the first');
    const turn = await server.model.next();
    expect(turn.body.messages.at(-1).content).toContain('by the first');
    turn.finish();
    await Promise.all([sent.ended, following.ended]);
    expect(ran).toEqual(['first']);
  });

  it('another page runs the call when that page is gone', async () => {
    const { second, sessionId, stream, ran } = await twoPages();
    const following = read(second.resume(sessionId));
    (await server.model.next()).call({ name: 'paint', input: { color: 'red' } });
    await expect.poll(() => ran).toEqual(['first']);
    await stream.return();
    const turn = await server.model.next();
    expect(turn.body.messages.at(-1).content).toContain('by the second');
    turn.finish();
    await following.ended;
  });

  it('a page runs a call that arrived before it followed the turn', async () => {
    const { second, sessionId, stream, events, ran } = await twoPages();
    const called = new Promise((resolve) => events.on('browser_tool_call', resolve));
    (await server.model.next()).call({ name: 'paint', input: { color: 'red' } });
    await called;
    await stream.return();
    expect(ran).not.toContain('second');
    const following = read(second.resume(sessionId));
    const turn = await server.model.next();
    expect(turn.body.messages.at(-1).content).toContain('by the second');
    turn.finish();
    await following.ended;
  });
});
