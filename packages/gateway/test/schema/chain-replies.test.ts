import { describe, expect, it } from 'vitest';
import { readCompiledProtos } from '../../../demo-chain/src/chain-schema.js';
import type { Facts } from './facts.js';
import { replyWriters } from './print-reply.js';
import { RandomSource } from './random/random-source.js';
import { RandomWire } from './random/random-wire.js';
import { referenceFile } from './reference-file.js';
import { SlowJson } from './slow/slow-json.js';

const FILE = 'ixo-messages.json';
const MESSAGES = 300;
const facts = referenceFile<Facts>(FILE);
const title = `${MESSAGES} random replies of each method of a real chain, from ${FILE} (${facts ? 'found' : 'NOT FOUND: not run'})`;

describe.skipIf(!facts)(title, () => {
  const { messages, enums = {}, services = {} } = facts ?? { messages: {} };
  const buildWriter = replyWriters(readCompiledProtos());
  const slow = new SlowJson({ messages, enums });
  const methods = Object.entries(services).flatMap(([service, methods]) =>
    Object.entries(methods).map(([name, { response }]) => ({
      name: `${service}/${name}`,
      response,
    })),
  );

  it('has 59 methods', () => {
    expect(methods).toHaveLength(59);
  });

  it.each(methods)('$name', ({ response }) => {
    const writer = buildWriter(response);
    const random = new RandomWire({ messages, enums }, new RandomSource(response.length));
    let printed = 0;
    for (let i = 0; i < MESSAGES; i += 1) {
      const bytes = random.message(response).finish();
      const json = writer.write(bytes).toString();
      const expected = slow.message(response, bytes);
      if (json === expected) printed += 1;
      else expect(json).toBe(expected);
    }
    expect(printed).toBe(MESSAGES);
  });
});
