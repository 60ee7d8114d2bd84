import { expect, it } from 'vitest';
import { JsonSink, Label } from './json-sink.js';

it('prints names of every length, amid what comes before and after', () => {
  for (let length = 1; length <= 40; length++) {
    const out = new JsonSink();
    const name = 'zyxwvutsrq'.repeat(4).slice(0, length);
    out.ascii('1');
    out.label(new Label(name));
    out.ascii('2');
    expect(out.take().toString()).toBe(`1,"${name}":2`);
  }
});

it('grows with what is printed', () => {
  const out = new JsonSink();
  const label = new Label('a_name');
  for (let i = 0; i < 10_000; i++) out.label(label);
  expect(out.take().toString()).toBe(',"a_name":'.repeat(10_000));
});

it('refuses names that no field has', () => {
  expect(() => new Label('größe')).toThrow('those are ASCII');
});
