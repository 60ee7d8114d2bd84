import { createSigner, type OracleClientOptions, type StreamState } from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { useControlledHost } from '../../host/test/support/controlled-host.js';
import { createTestClient } from './support/client.js';
import { type Network, startNetwork } from './support/network.js';
import { read } from './support/reading.js';

const server = useControlledHost();
let network: Network;
beforeAll(async () => {
  network = await startNetwork(server.host.url);
});
afterAll(() => network.close());
afterEach(() => network.restore());

async function begin(options: Partial<OracleClientOptions> = {}) {
  const client = createTestClient(network, options);
  const { sessionId } = await client.sessions.create();
  return { client, sessionId };
}

describe('client.stream', () => {
  it('reconnects without losing or repeating parts', async () => {
    const { client, sessionId } = await begin();
    const states: StreamState[] = [];
    const reading = read(
      client.stream(sessionId, 'go', { onState: (state) => states.push(state) }),
    );
    const turn = await server.model.next();
    const words = ['one ', 'two ', 'three '];
    for (const [i, word] of words.entries()) {
      turn.say(word);
      await reading.waitForText(words.slice(0, i + 1).join(''));
      network.dropConnections();
    }
    turn.finish();
    await reading.ended;
    expect(reading.turn).toMatchObject({ text: 'one two three ', status: 'finished' });
    expect(reading.parts.filter(({ event }) => event === 'run')).toHaveLength(1);
    expect(states.slice(0, 3)).toEqual(['live', 'rejoining', 'live']);
  });

  it('waits while offline and reads the parts it missed', async () => {
    const { client, sessionId } = await begin();
    const reading = read(client.stream(sessionId, 'go'));
    const turn = await server.model.next();
    turn.say('before ');
    await reading.waitForText('before ');
    network.goDown();
    await network.waitForAttempt();
    turn.say('after');
    turn.finish();
    network.restore();
    await reading.ended;
    expect(reading.turn).toMatchObject({ text: 'before after', status: 'finished' });
  });

  it('stops after reconnectTimeoutMs; the turn continues and can be resumed', async () => {
    const { client, sessionId } = await begin();
    const reading = read(client.stream(sessionId, 'go', { reconnectTimeoutMs: 100 }));
    const turn = await server.model.next();
    turn.say('half ');
    await reading.waitForText('half ');
    network.goDown();
    await expect(reading.ended).rejects.toMatchObject({ code: 'connection_lost' });
    network.restore();
    const again = read(client.resume(sessionId));
    await again.waitForText('half ');
    turn.say('whole');
    turn.finish();
    await again.ended;
    expect(again.turn).toMatchObject({ text: 'half whole', status: 'finished' });
  });

  it('finds its turn again if the first reply is lost', async () => {
    let isLost = false;
    const { client, sessionId } = await begin({
      fetch: async (url, request) => {
        const response = await fetch(url, request);
        if (isLost || !String(url).includes('/messages/')) return response;
        isLost = true;
        await response.body?.cancel();
        throw new TypeError('the network is gone');
      },
    });
    const reading = read(client.stream(sessionId, 'once'));
    const turn = await server.model.next();
    turn.say('yes');
    turn.finish();
    await reading.ended;
    expect(isLost).toBe(true);
    expect(reading.turn.text).toBe('yes');
    const messages = await client.messages.list(sessionId);
    expect(messages.map(({ content }) => content)).toEqual(['once', 'yes']);
  });

  it('throws network_error if the oracle is unreachable', async () => {
    const { client, sessionId } = await begin();
    network.goDown();
    await expect(read(client.stream(sessionId, 'go')).ended).rejects.toMatchObject({
      code: 'network_error',
    });
  });

  it('the turn continues after the reader stops', async () => {
    const { client, sessionId } = await begin();
    const stream = client.stream(sessionId, 'go');
    await stream.next();
    const turn = await server.model.next();
    await stream.return();
    turn.say('alone');
    turn.finish();
    const again = read(client.resume(sessionId));
    await again.ended;
    const stored = async () => (await client.messages.list(sessionId)).at(-1)?.content;
    await expect.poll(stored).toBe('alone');
  });

  it('throws the reason of its signal', async () => {
    const { client, sessionId } = await begin();
    const leaving = new AbortController();
    const reading = read(client.stream(sessionId, 'go', { signal: leaving.signal }));
    const turn = await server.model.next();
    turn.say('x');
    await reading.waitForText('x');
    leaving.abort(new Error('left'));
    await expect(reading.ended).rejects.toThrow('left');
    expect(await client.abort(sessionId)).toBe(true);
    await turn.left;
  });

  it('ends with the status aborted after abort', async () => {
    const { client, sessionId } = await begin();
    const reading = read(client.stream(sessionId, 'go'));
    const turn = await server.model.next();
    turn.say('half ');
    await reading.waitForText('half ');
    expect(await client.abort(sessionId)).toBe(true);
    await reading.ended;
    expect(reading.turn).toMatchObject({ text: 'half ', status: 'aborted' });
    expect(await client.abort(sessionId)).toBe(false);
  });

  it('resume lets several clients read a turn', async () => {
    const signer = createSigner(generateSigner());
    const { client, sessionId } = await begin({ signer });
    const first = read(client.stream(sessionId, 'go'));
    const turn = await server.model.next();
    turn.say('both');
    await first.waitForText('both');
    const second = read(createTestClient(server.host, { signer }).resume(sessionId));
    await second.waitForText('both');
    turn.finish();
    await Promise.all([first.ended, second.ended]);
    expect(second.parts).toEqual(first.parts);
  });

  it('runs.join starts after the given frame', async () => {
    const { client, sessionId } = await begin();
    const reading = read(client.stream(sessionId, 'go'));
    const turn = await server.model.next();
    turn.say('all of it');
    turn.finish();
    await reading.ended;
    const { runId = '' } = reading.turn;
    const rest = read(client.runs.join(runId, { after: 1 }));
    await rest.ended;
    expect(rest.parts).toEqual(reading.parts.slice(1));
    await expect(read(client.runs.join('nowhere')).ended).rejects.toMatchObject({
      code: 'run_not_found',
    });
  });
});

it('messages.send survives a lost connection', async () => {
  const { client, sessionId } = await begin();
  const reply = client.messages.send(sessionId, 'go');
  const turn = await server.model.next();
  network.dropConnections();
  turn.say('one answer');
  turn.finish();
  expect((await reply).message.content).toBe('one answer');
  expect(await client.messages.list(sessionId)).toHaveLength(2);
});
