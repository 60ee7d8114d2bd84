import { expect, it } from 'vitest';
import type { ModelCall, ModelMessage, UserPart } from '../models/model.js';
import { fitFiles } from './context-budget.js';
import { estimateCall } from './model-call.js';

const image: UserPart = { type: 'file', mediaType: 'image/png', data: new Uint8Array(9) };
const text = (value: string): UserPart => ({ type: 'text', text: value });
const user = (...content: UserPart[]): ModelMessage => ({ role: 'user', content });

function call(...messages: ModelMessage[]): ModelCall {
  return { system: '', messages, tools: [], signal: new AbortController().signal };
}

const countImages = ({ messages }: ModelCall) =>
  messages.map((message) =>
    message.role === 'user' && typeof message.content !== 'string'
      ? message.content.filter(({ type }) => type === 'file').length
      : 0,
  );

const album = call(
  user(text('first'), image),
  { role: 'assistant', text: 'A cat.' },
  user(text('second'), image),
  { role: 'assistant', text: 'A dog.' },
  user(text('third'), image),
);

it('fitFiles returns a call that fits as it is', () => {
  expect(fitFiles(album, 10_000)).toBe(album);
});

it('fitFiles leaves out the oldest images first, and says so in their place', () => {
  const fitted = fitFiles(album, 3200);
  expect(countImages(fitted)).toEqual([0, 0, 1, 0, 1]);
  expect(JSON.stringify(fitted.messages[0])).toContain('left out');
  expect(JSON.stringify(fitted.messages[0])).toContain('first');
  expect(countImages(fitFiles(album, 1700))).toEqual([0, 0, 0, 0, 1]);
  expect(countImages(fitFiles(album, 100))).toEqual([0, 0, 0, 0, 0]);
  expect(countImages(album)).toEqual([1, 0, 1, 0, 1]);
});

it('fitFiles shortens the texts of files before it drops the images of the newest message', () => {
  const long = call(user(text('question'), text('word '.repeat(4000)), image));
  const fitted = fitFiles(long, 2500);
  expect(estimateCall(fitted)).toBeLessThanOrEqual(2500);
  expect(countImages(fitted)).toEqual([1]);
  expect(JSON.stringify(fitted.messages)).toContain('The rest is left out');
});

it('fitFiles leaves out the media of tool results, which their outputs describe', () => {
  const media = [{ mediaType: 'image/png', data: new Uint8Array(9) }];
  const result = { id: 'a', name: 'draw', output: '"a chart"', isError: false };
  const drawn = call(user(text('draw')), {
    role: 'tool',
    results: [{ ...result, media }],
  });
  expect(fitFiles(drawn, 5000)).toBe(drawn);
  expect(fitFiles(drawn, 500).messages[1]).toEqual({ role: 'tool', results: [result] });
});

it('fitFiles estimates a long call once, although nothing of it can be left out', () => {
  const long = call(...Array.from({ length: 1000 }, () => user(text('word '))));
  let estimates = 0;
  const watched = Object.defineProperty({ ...long }, 'system', {
    get: () => {
      estimates += 1;
      return '';
    },
  });
  expect(fitFiles(watched, 10)).toBe(watched);
  expect(estimates).toBe(1);
});
