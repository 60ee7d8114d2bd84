import { expect, it } from 'vitest';
import { readAnswer, renderText } from './chat-render.js';

const schema = {
  type: 'object',
  properties: { name: { type: 'string' }, places: { type: 'integer' }, site: { type: 'string' } },
};

it('readAnswer reads a line for each field', () => {
  const text = ' Name : Ada\nplaces:2\nsite: https://ixo.world\nother: 1\nname';
  expect(readAnswer({ schema }, text)).toEqual({
    name: 'Ada',
    places: 2,
    site: 'https://ixo.world',
  });
});

it('readAnswer reads long lines of spaces in no time', () => {
  const spaces = ' '.repeat(20_000);
  expect(readAnswer({ schema }, `x\n${spaces}\nname: Ada`)).toEqual({ name: 'Ada' });
});

it.each(['>', '1. ', '> - '])('renderText shows a text of very many %s as it is', (mark) => {
  const text = mark.repeat(5000).trim();
  const contents = renderText(text);
  expect(
    contents
      .map(({ body }) => body)
      .join('')
      .replaceAll('\n', ''),
  ).toBe(text);
});
