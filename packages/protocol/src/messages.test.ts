import { describe, expect, it } from 'vitest';
import { Attachment } from './files.js';
import { SendMessage } from './messages.js';

const parse = (body: unknown) => SendMessage.safeParse(body);
const problems = (body: unknown) =>
  parse(body).error?.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`) ?? [];

function nested(depth: number): Record<string, unknown> {
  let value: Record<string, unknown> = {};
  for (let i = 0; i < depth; i++) value = { a: value };
  return value;
}

it('fills in the defaults', () => {
  expect(SendMessage.parse({ message: 'hi' })).toEqual({
    message: 'hi',
    stream: false,
    returnAllMessages: false,
    multitask: 'enqueue',
  });
});

it('takes everything the interface lists', () => {
  const body = {
    message: 'hi',
    stream: true,
    tools: [{ name: 'scroll', schema: { $schema: 'x' }, description: 'Scrolls' }],
    agActions: [{ name: 'chart', description: '', schema: {}, hasRender: true }],
    attachments: [{ mxcUri: 'mxc://a.org/b', filename: 'f.txt', mimetype: 'text/plain', size: 3 }],
    mcpInvocations: { search: 'AAAA' },
    timezone: 'Africa/Nairobi',
    homeServer: 'matrix.org',
    metadata: { editorRoomId: '!r', spaceId: '!s', anything: [1] },
    model: 'offline',
    requestId: 'r-1',
    multitask: 'reject',
  };
  expect(parse(body).success).toBe(true);
});

describe('refuses', () => {
  it.each([
    ['an empty message', { message: '' }, 'message'],
    ['no message', {}, 'message'],
    ['an unknown field', { message: 'hi', tols: [] }, 'tols'],
    ['a number for stream', { message: 'hi', stream: 1 }, 'stream'],
    ['an endless time zone', { message: 'hi', timezone: 'x'.repeat(256) }, 'timezone'],
    ['deep metadata', { message: 'hi', metadata: nested(10_000) }, 'metadata'],
    ['an unknown multitask', { message: 'hi', multitask: 'drop' }, 'multitask'],
    ['an oversized token', { message: 'hi', mcpInvocations: { t: 'A'.repeat(8193) } }, 't'],
    [
      'eleven attachments',
      {
        message: 'hi',
        attachments: Array(11).fill({ eventId: '$e', filename: 'f', mimetype: 'm' }),
      },
      'attachments',
    ],
  ])('%s', (_, body, field) => {
    expect(problems(body).join('\n')).toContain(field);
  });
});

describe.each(['tools', 'agActions'] as const)('%s of SendMessage', (field) => {
  const declare = (...schemas: unknown[]) => ({
    message: 'hi',
    [field]: schemas.map((schema, i) => ({ name: `t${i}`, description: 'd', schema })),
  });
  const half = { description: 'x'.repeat(128 * 1024 - 30) };

  it('may hold schemas up to a size, and says so beyond it', () => {
    expect(problems(declare(half, half))).toEqual([]);
    expect(problems(declare(half, half, half))).toEqual([
      `${field}: the schemas may hold at most 262144 characters of JSON together`,
    ]);
  });

  it('may hold a number of values', () => {
    const values = (count: number) => ({ enum: Array.from({ length: count }, (_, i) => i) });
    expect(problems(declare(values(9_000), values(9_000)))).toEqual([]);
    expect(problems(declare(values(9_000), values(12_000)))).toEqual([
      `${field}: the schemas may hold at most 20000 values together`,
    ]);
  });

  it('SendMessage accepts 128 entries of any kind', () => {
    expect(problems(declare(...Array(128).fill({})))).toEqual([]);
    const many = { message: 'hi', [field]: Array(100_000).fill([]) };
    expect(problems(many)).toEqual([`${field}: may hold at most 128 entries`]);
  });
});

it('JsonObject refuses long names and what holds itself', () => {
  expect(problems({ message: 'hi', metadata: { ['x'.repeat(257)]: 1 } }).join()).toContain('256');
  const loop: Record<string, unknown> = {};
  Object.assign(loop, { left: loop, right: loop });
  expect(problems({ message: 'hi', metadata: loop }).join()).toContain('32 levels');
});

it('wants an attachment to say where it is', () => {
  expect(Attachment.safeParse({ filename: 'f', mimetype: 'm' }).success).toBe(false);
  expect(Attachment.safeParse({ eventId: '$e', filename: 'f', mimetype: 'm' }).success).toBe(true);
  expect(Attachment.safeParse({ mxcUri: 'http://a/b', filename: 'f', mimetype: 'm' }).success).toBe(
    false,
  );
});
