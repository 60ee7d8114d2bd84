import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { SendMessage } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { toAgentTool } from '../src/agent/tool-schema.js';
import { ask, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { openSession } from './support/stream.js';

const test = useControlledHost();

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');

/** Megabytes in use once garbage is collected. */
function usedMegabytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed / 1024 ** 2;
}

const FIELD = { type: 'string', description: 'Set by the page', minLength: 1, maxLength: 40 };

/** Functions of a page whose schemas take about so many characters; no two messages have the same. */
function declare(kind: string, count: number, characters: number) {
  const fields = Math.floor(characters / count / (JSON.stringify(FIELD).length + 24));
  return Array.from({ length: count }, (_, tool) => {
    const names = Array.from({ length: fields }, (__, i) => `${kind}_${tool}_field_${i}`);
    const properties = Object.fromEntries(names.map((name) => [name, FIELD]));
    return { name: `${kind}_${tool}`, description: 'd', schema: { type: 'object', properties } };
  });
}

describe('POST /messages with many schemas', () => {
  it('rejects too many schemas, names the field, and stores nothing', async () => {
    const sessionId = await openSession(test.alice);
    const send = async (n: number) => {
      const body = { message: 'hi', tools: declare(`m${n}`, 60, 900_000) };
      const reply = await test.alice.request('POST', `/messages/${sessionId}`, { body });
      expect([reply.status, reply.body.message]).toEqual([
        400,
        ['tools: the schemas may hold at most 262144 characters of JSON together'],
      ]);
    };
    await send(0);
    const before = usedMegabytes();
    for (let n = 1; n <= 8; n++) await send(n);
    expect(usedMegabytes() - before).toBeLessThan(8);
  });

  it('accepts schemas just below the limit, and keeps no memory of them', async () => {
    const send = async (n: number) => {
      const tools = declare(`t${n}`, 60, 255_000);
      const agActions = declare(`a${n}`, 60, 255_000);
      const exchange = await ask(test, [say('fine')], { tools, agActions });
      expect(exchange.text).toBe('fine');
      expect(filterFrames(exchange, 'warning')).toEqual([]);
      expect(exchange.turns[0]?.tools).toEqual(
        expect.arrayContaining([...tools, ...agActions].map(({ name }) => name)),
      );
    };
    await send(0);
    const before = usedMegabytes();
    for (let n = 1; n <= 8; n++) await send(n);
    expect(usedMegabytes() - before).toBeLessThan(8);
  });
});

describe('the processor time of schemas', () => {
  /** The least of several runs, since other processes share the machine; each run has another text. */
  function leastTime(texts: readonly string[], work: (text: string) => void): number {
    const times = texts.map((text) => {
      const start = process.cpuUsage();
      work(text);
      const { user, system } = process.cpuUsage(start);
      return user + system;
    });
    return Math.max(1, Math.min(...times));
  }

  const buildTexts = (count: number, characters: number) =>
    Array.from({ length: 7 }, (_, run) =>
      JSON.stringify({ message: 'hi', tools: declare(`r${run}`, count, characters) }),
    );

  it('that SendMessage rejects is a few times that of JSON.parse', () => {
    const texts = buildTexts(60, 900_000);
    const refuse = leastTime(texts, (text) => {
      expect(SendMessage.safeParse(JSON.parse(text)).success).toBe(false);
    });
    expect(refuse / leastTime(texts, JSON.parse)).toBeLessThan(5);
  });

  it('that toAgentTool reads is some times that of JSON.parse', () => {
    const texts = buildTexts(60, 255_000);
    const read = leastTime(texts, (text) => {
      for (const { schema: inputSchema, ...tool } of JSON.parse(text).tools)
        expect(toAgentTool({ ...tool, inputSchema, run: async () => null })).toHaveProperty('ok');
    });
    expect(read / leastTime(texts, JSON.parse)).toBeLessThan(40);
  });
});
