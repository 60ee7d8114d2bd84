import type { Attachment, ReplyWarning } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../test/support/test-runs.js';
import type { Caller } from '../auth/caller.js';
import type { Models } from '../models/models.js';
import { toQuestionParts } from '../store/message-store.js';
import {
  fromStoredRequest,
  readQuestion,
  readTimezone,
  type TurnRequest,
  toGateRequest,
  toStoredRequest,
  withExpiryWarning,
} from './turn-request.js';

const CALLER: Caller = {
  did: 'did:key:zAlice',
  expiration: 1000,
  presentedDelegation: 'delegation',
  presentedAt: 900,
  loginCids: ['login'],
};

function createRequest(
  more: Partial<TurnRequest> = {},
  message: Partial<TurnRequest['message']> = {},
): TurnRequest {
  return {
    caller: CALLER,
    sessionId: 's1',
    requestId: 'r1',
    message: { message: '', multitask: 'enqueue', ...message },
    user: {},
    client: 'api',
    ...more,
  };
}

describe('readQuestion', () => {
  const test = useStore('sqlite');
  const FILE: Attachment = { fileId: 'f1', filename: 'a.txt', mimetype: 'text/plain' };

  /** A question with a file, and its answer. */
  async function converse() {
    const content = 'What is this?';
    const parts = toQuestionParts(content, [FILE]);
    const message = { content, parts, metadata: { page: 1 } };
    const { run, key, session } = await startTestRun(test.store, { message });
    await finishTestRun(test.store.runs, key, { content: 'A file.' });
    const { owner, sessionId } = session;
    const ask = (questionId: string, more: Partial<TurnRequest> = {}) => {
      const caller = { ...CALLER, did: owner };
      const request = createRequest({ caller, sessionId, origin: { questionId }, ...more });
      return readQuestion(request, test.store.messages);
    };
    const answers = await test.store.messages.recent({
      ...session,
      branch: 0,
      throughTurn: 1,
      bytes: 1000,
    });
    const [question, answer] = answers;
    if (!question || !answer) throw new Error('no messages');
    return { run, ask, question, answer };
  }

  it('takes text, files and metadata of the question that is answered again', async () => {
    const { ask, question } = await converse();
    const { message, origin } = await ask(question.id);
    expect(message).toMatchObject({
      message: 'What is this?',
      attachments: [FILE],
      metadata: { page: 1 },
      multitask: 'enqueue',
    });
    expect(origin).toEqual({ questionId: question.id });
  });

  it('finds the question of an answer', async () => {
    const { ask, question, answer } = await converse();
    const { origin, message } = await ask(answer.id);
    expect(origin).toEqual({ questionId: question.id });
    expect(message.message).toBe('What is this?');
  });

  it('uses other options of the new message, but not its text', async () => {
    const { ask, question } = await converse();
    const options = { message: 'ignored', model: 'large', metadata: { page: 2 } };
    const { message } = await ask(question.id, { message: { ...options, multitask: 'reject' } });
    expect(message).toMatchObject({
      message: 'What is this?',
      model: 'large',
      metadata: { page: 2 },
      multitask: 'reject',
    });
  });

  it('refuses a question of another user or session', async () => {
    const { ask, question } = await converse();
    const unknown = { code: 'message_not_found' };
    await expect(ask(question.id, { caller: CALLER })).rejects.toMatchObject(unknown);
    await expect(ask(question.id, { sessionId: 's2' })).rejects.toMatchObject(unknown);
    await expect(ask('m9')).rejects.toMatchObject(unknown);
  });

  it('leaves a new message as it is', async () => {
    for (const origin of [undefined, { parentId: 'm1' }]) {
      const request = createRequest({ origin }, { message: 'New' });
      expect(await readQuestion(request, test.store.messages)).toBe(request);
    }
  });
});

describe('a stored request', () => {
  const store = (request: TurnRequest) =>
    fromStoredRequest(JSON.parse(JSON.stringify(toStoredRequest(request))));

  it('is the same for the host that reads it', () => {
    const request = createRequest({ waitsForPaused: true, user: { timezone: 'UTC' } });
    expect(store(request)).toEqual(request);
  });

  it('keeps that a login never expires', () => {
    const caller = { ...CALLER, expiration: Number.POSITIVE_INFINITY };
    expect(store(createRequest({ caller }))?.caller).toEqual(caller);
  });

  it('contains no more of the caller than the turn needs', () => {
    const accessKey = { cid: 'key', caveats: {} };
    const caller = { ...CALLER, accessKey, charge: () => undefined };
    expect(store(createRequest({ caller }))?.caller).toEqual({ ...CALLER, accessKey });
  });

  it.each([undefined, null, 'text', 1])('is missing if %s is stored', (stored) => {
    expect(fromStoredRequest(stored)).toBeUndefined();
  });
});

describe('readTimezone', () => {
  it('returns the first one that is known', () => {
    expect(readTimezone('Africa/Nairobi', 'Europe/Berlin')).toEqual({
      timezone: 'Africa/Nairobi',
      warnings: [],
    });
    expect(readTimezone(undefined, '', 'Europe/Berlin')).toEqual({
      timezone: 'Europe/Berlin',
      warnings: [],
    });
    expect(readTimezone()).toEqual({ warnings: [] });
  });

  it('warns of each unknown one before it', () => {
    const { timezone, warnings } = readTimezone('Mars/Base', 'Moon/Base', 'UTC', 'Venus/Base');
    expect(timezone).toBe('UTC');
    expect(warnings).toMatchObject([
      { code: 'unknown_timezone', message: expect.stringContaining('"Mars/Base"') },
      { code: 'unknown_timezone', message: expect.stringContaining('"Moon/Base"') },
    ]);
  });

  it('quotes no more than 64 characters, as valid Unicode', () => {
    const { warnings } = readTimezone(`${'x'.repeat(63)}😀`, 'y'.repeat(65));
    expect(warnings[0]?.message).toContain(`"${'x'.repeat(63)}\ufffd"`);
    expect(warnings[1]?.message).toContain(`"${'y'.repeat(64)}"`);
  });
});

describe('withExpiryWarning', () => {
  const earlier: ReplyWarning = { code: 'unknown_timezone', message: 'x' };
  const codes = (request: TurnRequest) =>
    withExpiryWarning(request).warnings?.map(({ code }) => code);

  it('warns after a pause of credentials that came with the message', () => {
    const mcp = createRequest({ warnings: [earlier] }, { mcpInvocations: { server: 'token' } });
    expect(codes(mcp)).toEqual(['unknown_timezone', 'credentials_expired']);
    const matrix = createRequest({ user: { matrixAccessToken: 'token' } });
    expect(codes(matrix)).toEqual(['credentials_expired']);
  });

  it('does not warn without any', () => {
    expect(codes(createRequest())).toBeUndefined();
    const elsewhere = { timezone: 'UTC', matrixHomeServer: 'https://matrix' };
    const request = createRequest({ warnings: [earlier], user: elsewhere });
    expect(codes(request)).toEqual(['unknown_timezone']);
  });
});

describe('toGateRequest', () => {
  const models = { get: (role: string) => ({ id: `the ${role} model` }) } as Models;

  it('names the model that will answer, and the length of the text only', () => {
    const place = { owner: CALLER.did, sessionId: 's1', requestId: 'r1' };
    expect(toGateRequest(createRequest({}, { message: 'hello' }), models)).toEqual({
      ...place,
      model: 'the main model',
      length: 5,
    });
    const chosen = createRequest({}, { model: 'large' });
    expect(toGateRequest(chosen, models)).toEqual({ ...place, model: 'large', length: 0 });
  });
});
