import { expect, it } from 'vitest';
import { type HistoryMessage, toModelMessages } from './history.js';

const human = (content: string): HistoryMessage => ({ type: 'human', content, isComplete: true });
const ai = (content: string, changes: Partial<HistoryMessage> = {}): HistoryMessage => ({
  type: 'ai',
  content,
  isComplete: true,
  ...changes,
});
const call = {
  id: 'c1',
  name: 'add',
  args: { a: 1 },
  status: 'done' as const,
  output: '{"sum":2}',
};

it('keeps the order and who said what', () => {
  expect(toModelMessages([human('Hi'), ai('Hello'), human('Bye')])).toEqual([
    { role: 'user', content: 'Hi' },
    { role: 'assistant', text: 'Hello' },
    { role: 'user', content: 'Bye' },
  ]);
});

it('shows tool calls with their results before the answer', () => {
  const toolCalls = [call, { ...call, id: 'c2', status: 'error' as const, output: '"no"' }];
  expect(toModelMessages([ai('It is 2.', { toolCalls })])).toEqual([
    {
      role: 'assistant',
      text: '',
      toolCalls: [
        { id: 'c1', name: 'add', input: '{"a":1}' },
        { id: 'c2', name: 'add', input: '{"a":1}' },
      ],
    },
    {
      role: 'tool',
      results: [
        { id: 'c1', name: 'add', output: '{"sum":2}', isError: false },
        { id: 'c2', name: 'add', output: '"no"', isError: true },
      ],
    },
    { role: 'assistant', text: 'It is 2.' },
  ]);
});

it('marks an answer that was cut off, also one without a word', () => {
  const cut = '(This answer was cut off before it was finished.)';
  expect(toModelMessages([ai('It is', { isComplete: false })])).toEqual([
    { role: 'assistant', text: `It is\n\n${cut}` },
  ]);
  expect(toModelMessages([ai('', { isComplete: false, toolCalls: [call] })]).at(-1)).toEqual({
    role: 'assistant',
    text: cut,
  });
});

it('names what was attached', () => {
  const attachments = [{ mxcUri: 'mxc://a/b', filename: 'plan.pdf', mimetype: 'application/pdf' }];
  expect(toModelMessages([{ ...human('See'), attachments }])).toEqual([
    { role: 'user', content: 'See\n(Attached: plan.pdf, application/pdf)' },
  ]);
});

it('has no empty and no unknown messages', () => {
  const unknown = { ...ai('x'), type: 'system' } as unknown as HistoryMessage;
  expect(toModelMessages([human('  '), ai(' \n'), unknown])).toEqual([
    { role: 'user', content: '(No text.)' },
  ]);
});
