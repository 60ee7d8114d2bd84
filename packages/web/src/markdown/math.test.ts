import { expect, it } from 'vitest';
import { normalizeMath } from './math.js';

it.each([
  ['the sum $a + b$ is', 'the sum $$a + b$$ is'],
  ['inline \\(x^2\\) too', 'inline $$x^2$$ too'],
  ['a block \\[x\\] here', 'a block \n$$\nx\n$$\n here'],
  ['already $$y$$ fine', 'already $$y$$ fine'],
])('normalizeMath recognizes %j', (text, math) => {
  expect(normalizeMath(text)).toBe(math);
});

it.each([
  'it costs $5 and then $10 more',
  'between $5 and $7.50',
  'the variable `$HOME$` and `\\(x\\)`',
  '```sh\necho $PATH $HOME\n```',
  'escaped \\$5$',
])('normalizeMath leaves %j as it is', (text) => {
  expect(normalizeMath(text)).toBe(text);
});
