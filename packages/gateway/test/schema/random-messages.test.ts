import { describe, expect, it } from 'vitest';
import { scale } from '../../../../scripts/test-scale.ts';
import { descriptorSet } from './descriptor-set.js';
import { replyWriters } from './print-reply.js';
import { RandomSource } from './random/random-source.js';
import { RandomWire } from './random/random-wire.js';
import { SHAPES } from './random/shapes.js';
import { SlowJson } from './slow/slow-json.js';

const MESSAGES = scale(10_000, 2_000);

describe(`${MESSAGES} random messages print as an independent slow implementation prints them`, () => {
  const buildWriter = replyWriters(descriptorSet(SHAPES));
  const slow = new SlowJson(SHAPES);
  const shapes = Object.keys(SHAPES.messages).filter((type) => type.startsWith('shapes.'));

  it.each(shapes)('%s', { timeout: 120_000 }, (type) => {
    const writer = buildWriter(type);
    const random = new RandomWire(SHAPES, new RandomSource(Buffer.from(type).readUInt32BE()));
    let printed = 0;
    for (let i = 0; i < MESSAGES; i += 1) {
      const bytes = random.message(type).finish();
      const json = writer.write(bytes).toString();
      const expected = slow.message(type, bytes);
      // One assertion per message would take most of the time.
      if (json === expected) printed += 1;
      else expect(json).toBe(expected);
    }
    expect(printed).toBe(MESSAGES);
  });
});
