import { afterEach, beforeEach, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
let host: TestHost;
let alice: TestUser;

beforeEach(async () => {
  model = await startControlledModel();
  const prices = { input: 1_000_000, output: 2_000_000 };
  const env = {
    ...model.env,
    MODEL: 'openai/gpt-down',
    OPENAI_API_KEY: 'sk-none',
    OPENAI_BASE_URL: 'http://127.0.0.1:1/v1',
    MODEL_SMALL: 'openai-compatible/controlled',
    MODEL_CHOICES: 'openai-compatible/controlled',
    MODEL_FALLBACK: 'openai-compatible/controlled',
    MODEL_SETTINGS: JSON.stringify({ 'openai-compatible/*': { prices } }),
  };
  host = await startHost({ env });
  alice = new TestUser(host);
});

afterEach(async () => {
  await host?.close();
  model?.close();
});

it('POST /messages answers with MODEL_FALLBACK while the first model is down, and says so', async () => {
  const live = await stream(alice, await openSession(alice), { message: 'Hello?' });
  (await model.next()).answer('Hi');
  const frames = await live.toEnd();
  expect(live.text).toBe('Hi');
  const warnings = frames.filter(({ event }) => event === 'warning').map(({ data }) => data);
  expect(warnings).toMatchObject([{ code: 'model_fallback' }]);
  // Of the model that answered.
  const usage = { inputTokens: 7, outputTokens: 3, cachedTokens: 0, cost: 13 };
  expect(frames.at(-1)).toMatchObject({ event: 'done', data: { status: 'finished', usage } });
}, 120_000);

it('POST /messages passes the effort and the schema on, and reports usage and cost in JSON', async () => {
  const body = {
    message: 'Hello?',
    model: 'openai-compatible/controlled',
    reasoningEffort: 'low',
    responseSchema: { type: 'object', properties: { hi: { type: 'boolean' } }, required: ['hi'] },
  };
  const headers = { 'idempotency-key': 'once' };
  const path = `/messages/${await openSession(alice)}`;
  const reply = alice.request('POST', path, { body, headers });
  const turn = await model.next();
  expect(turn.body.reasoning_effort).toBe('low');
  expect(turn.body.response_format.json_schema.schema.required).toEqual(['hi']);
  turn.answer('{"hi": true}');
  const first = await reply;
  expect(first.body).toMatchObject({
    message: { content: '{"hi":true}' },
    status: 'finished',
    usage: { inputTokens: 7, outputTokens: 3, cachedTokens: 0, cost: 13 },
  });
  const again = await alice.request('POST', path, { body, headers });
  expect(again.body).toEqual({ ...first.body, requestId: again.body.requestId });
});

it('POST /messages answers 422 response_schema_mismatch if the model does not follow the schema', async () => {
  const body = {
    message: 'Hello?',
    model: 'openai-compatible/controlled',
    responseSchema: { type: 'array', minItems: 2 },
  };
  const reply = alice.request('POST', `/messages/${await openSession(alice)}`, { body });
  (await model.next()).answer('never');
  (await model.next()).answer('[1]');
  const { status, body: error } = await reply;
  expect([status, error.code]).toEqual([422, 'response_schema_mismatch']);
  expect(error.message).toContain('answer');
});
