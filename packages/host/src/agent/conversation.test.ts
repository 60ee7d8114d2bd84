import type { ToolCall } from '@sibyl/protocol';
import { expect, it } from 'vitest';
import type { ModelMessage } from '../models/model.js';
import { toQuestionParts } from '../store/message-store.js';
import {
  type HistoryMessage,
  type TurnNote,
  toModelMessages,
  toWellFormed,
} from './conversation.js';

const toCallParts = (calls: readonly ToolCall[]) =>
  calls.map((call) => ({ type: 'tool-call' as const, call }));
const say = (text: string) => ({ type: 'text' as const, text });
const createdAt = Date.parse('2026-03-01T22:30:00.000Z');
const SENT = '[Sent: Sunday, 2026-03-01T22:30+00:00 (UTC)]';
const convert = (messages: readonly HistoryMessage[], turn: Partial<TurnNote> = {}) =>
  toModelMessages(messages, { timezone: 'UTC', ...turn });
const human = (content: string): HistoryMessage => ({
  type: 'human',
  content,
  isComplete: true,
  createdAt,
});
const ai = (content: string, changes: Partial<HistoryMessage> = {}): HistoryMessage => ({
  type: 'ai',
  content,
  isComplete: true,
  createdAt,
  ...changes,
});
const call = {
  id: 'c1',
  name: 'add',
  args: { a: 1 },
  status: 'done' as const,
  output: '{"sum":2}',
};

it('toModelMessages keeps order and roles', () => {
  expect(convert([human('Hi'), ai('Hello'), human('Bye')])).toEqual([
    { role: 'user', content: 'Hi', note: SENT },
    { role: 'assistant', text: 'Hello' },
    { role: 'user', content: 'Bye', note: SENT },
  ]);
});

it('toModelMessages puts tool calls and results before the answer', () => {
  const toolCalls = [call, { ...call, id: 'c2', status: 'error' as const, output: '"no"' }];
  const parts = [...toCallParts(toolCalls), say('It is 2.')];
  expect(convert([ai('It is 2.', { parts })])).toEqual([
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

it('toModelMessages keeps the order of texts and calls, without reasoning and components', () => {
  const parts = [
    { type: 'reasoning', text: 'hm' } as const,
    say('I look.'),
    ...toCallParts([call, { ...call, id: 'c2' }]),
    { type: 'component', component: { name: 'chart' } } as const,
    say('\n\nOne more.'),
    ...toCallParts([{ ...call, id: 'c3' }]),
    say('\n\nDone.'),
  ];
  const messages = convert([ai('I look.\n\nOne more.\n\nDone.', { parts })]);
  expect(messages).toMatchObject([
    { role: 'assistant', text: 'I look.', toolCalls: [{ id: 'c1' }, { id: 'c2' }] },
    { role: 'tool', results: [{ id: 'c1' }, { id: 'c2' }] },
    { role: 'assistant', text: 'One more.', toolCalls: [{ id: 'c3' }] },
    { role: 'tool', results: [{ id: 'c3' }] },
    { role: 'assistant', text: 'Done.' },
  ]);
});

it('toModelMessages marks an interrupted answer, even an empty one', () => {
  const mark = '(This answer was interrupted before it was complete.)';
  expect(convert([ai('It is', { isComplete: false })])).toEqual([
    { role: 'assistant', text: `It is\n\n${mark}` },
  ]);
  expect(convert([ai('', { isComplete: false, parts: toCallParts([call]) })]).at(-1)).toEqual({
    role: 'assistant',
    text: mark,
  });
});

it('toModelMessages names attachments', () => {
  const attachments = [{ mxcUri: 'mxc://a/b', filename: 'plan.pdf', mimetype: 'application/pdf' }];
  expect(convert([{ ...human('See'), parts: toQuestionParts('See', attachments) }])).toEqual([
    {
      role: 'user',
      content: 'See\n(Attached: plan.pdf, application/pdf)',
      note: SENT,
      attachments,
    },
  ]);
});

it('toModelMessages skips empty and unknown messages', () => {
  const unknown = { ...ai('x'), type: 'system' } as unknown as HistoryMessage;
  expect(convert([human('  '), ai(' \n'), unknown])).toEqual([
    { role: 'user', content: '(No text.)', note: SENT },
  ]);
});

it('toModelMessages returns the same messages in a later turn, and reports the state of the turn in the newest', () => {
  const first = { ...human('Hi'), metadata: { spaceId: '!s:x' } };
  const degraded = [{ name: 'Matrix', missing: 'files' }];
  const before = convert([first], { now: createdAt });
  const after = convert([first, ai('Hello'), { ...human('Bye'), createdAt: createdAt + 60_000 }], {
    now: createdAt + 3_600_000,
    degraded,
  });
  expect(after.slice(0, 1)).toEqual(before);
  expect(after.at(-1)).toMatchObject({ note: expect.stringContaining('T22:31') });
  expect(after.at(-1)).toMatchObject({ note: expect.stringContaining('[Current time: ') });
  expect(after.at(-1)).toMatchObject({ note: expect.stringContaining('Matrix: files') });
});

const user = (content: string): ModelMessage => ({ role: 'user', content });
const answer = (text: string): ModelMessage => ({ role: 'assistant', text });
const calls = (...ids: string[]): ModelMessage => ({
  role: 'assistant',
  text: '',
  toolCalls: ids.map((id) => ({ id, name: 'look', input: '{}' })),
});
const results = (...ids: string[]): ModelMessage => ({
  role: 'tool',
  results: ids.map((id, n) => ({ id, name: 'look', output: String(n), isError: false })),
});

const fix = (...messages: ModelMessage[]) => toWellFormed(messages);

it('toWellFormed leaves a valid conversation unchanged', () => {
  const good = [user('a'), calls('1', '2'), results('1', '2'), answer('b'), user('c')];
  expect(fix(...good)).toEqual(good);
});

it('toWellFormed inserts an answer between two messages of the user', () => {
  expect(fix(user('a'), user('b'))).toEqual([
    user('a'),
    answer('(No answer was given.)'),
    user('b'),
  ]);
  const mark = fix(user('a'), calls('1'), results('1'), user('b'));
  expect(mark.at(-2)).toEqual(answer('(No answer was given.)'));
});

it('toWellFormed starts with the user', () => {
  expect(fix(answer('a'))).toEqual([user('(The conversation began earlier.)'), answer('a')]);
});

it('toWellFormed joins consecutive answers', () => {
  expect(fix(user('a'), answer('b'), answer('c'))).toEqual([user('a'), answer('b\n\nc')]);
  const joined = fix(user('a'), answer('b'), calls('1'), results('1'));
  expect(joined[1]).toMatchObject({ text: 'b', toolCalls: [{ id: '1' }] });
});

it('toWellFormed adds missing results and drops results without a call', () => {
  const [, , tool] = fix(user('a'), calls('1', '2'), results('3', '2'), user('b'));
  expect(tool).toMatchObject({
    results: [
      { id: '1', isError: true },
      { id: '2', output: '1', isError: false },
    ],
  });
  expect(fix(user('a'), results('1'))).toEqual([user('a')]);
  expect(fix(user('a'), calls('1')).at(-1)).toMatchObject({ results: [{ isError: true }] });
});

it('toWellFormed replaces repeated ids and keeps each result with its call', () => {
  const [, first, firstResults, second, secondResults] = fix(
    user('a'),
    calls('1', '1'),
    results('1', '1'),
    calls('1'),
    results('1'),
  );
  const ids = [first, second].flatMap((message) =>
    message?.role === 'assistant' ? (message.toolCalls ?? []).map(({ id }) => id) : [],
  );
  expect(new Set(ids).size).toBe(3);
  const answered = [firstResults, secondResults].flatMap((message) =>
    message?.role === 'tool' ? message.results.map(({ id, output }) => [id, output]) : [],
  );
  expect(answered).toEqual([
    [ids[0], '0'],
    [ids[1], '1'],
    [ids[2], '0'],
  ]);
});

it('toWellFormed leaves nothing empty', () => {
  expect(fix(user(''), answer(''))).toEqual([user('(No text.)'), answer('(No answer was given.)')]);
});
