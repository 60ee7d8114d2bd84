import { expect, it } from 'vitest';
import { JsonSink, Label } from './json-sink.js';

it('JsonSink prints labels of every length between other text', () => {
  for (let length = 1; length <= 40; length++) {
    const out = new JsonSink();
    const name = 'zyxwvutsrq'.repeat(4).slice(0, length);
    out.ascii('1');
    out.label(new Label(name));
    out.ascii('2');
    expect(out.take().toString()).toBe(`1,"${name}":2`);
  }
});

it('JsonSink grows with the text', () => {
  const out = new JsonSink();
  const label = new Label('a_name');
  for (let i = 0; i < 10_000; i++) out.label(label);
  expect(out.take().toString()).toBe(',"a_name":'.repeat(10_000));
});

it('JsonSink rejects names that are not ASCII', () => {
  expect(() => new Label('größe')).toThrow('field names are ASCII');
});
