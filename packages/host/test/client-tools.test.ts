import { type Approval, buildDecisionClaims } from '@sibyl/protocol';
import { mintDelegation } from '@sibyl/ucan';
import { expect, it } from 'vitest';
import { bearer, useSurfaceHost } from './support/surface-host.js';

const test = useSurfaceHost({ env: { APPROVALS: 'read_secret' } });

async function post(path: string, body: object) {
  const reply = await fetch(test.host.url + path, {
    method: 'POST',
    headers: { ...bearer(test.key), 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: reply.status, text: await reply.text() };
}

/** The JSON of every event of a stream. */
const readEvents = async (reply: Promise<{ text: string }>) =>
  (await reply).text
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice('data: '.length)));

async function approveAll() {
  const { did } = test.host;
  const { approvals } = (await test.alice.request('GET', '/approvals')).body;
  for (const { id, args: originalArgs } of approvals as Approval[]) {
    const nb = await buildDecisionClaims({ id, decision: 'approve', originalArgs });
    const { ok } = mintDelegation({
      signer: test.alice.signer,
      audience: did,
      capabilities: [{ can: 'oracle/approve', with: `ixo:oracle:${did}`, nb: { ...nb } }],
      expiration: Math.floor(Date.now() / 1000) + 120,
      nonce: crypto.randomUUID(),
    });
    const body = { decision: 'approve', invocation: ok?.token };
    expect((await test.alice.request('POST', `/approvals/${id}`, { body })).status).toBe(200);
  }
}

const parameters = { type: 'object', required: ['city'] };
const declare = (name: string) => ({ name, description: 'Asks', parameters });
const user = { id: 'u1', role: 'user', parts: [{ type: 'text', text: 'Ask' }] };
const chat = (id: string, name: string, ...more: object[]) => {
  const { description } = declare(name);
  return post('/ui/chat', {
    id,
    trigger: 'submit-message',
    messages: [user, ...more],
    tools: { [name]: { description, parameters } },
  });
};

it('POST /ui/chat lets the client run no call that does not fit its schema', async () => {
  const reply = readEvents(chat('invalid', 'get_weather'));
  (await test.model.next()).call({ name: 'get_weather', input: {} });
  (await test.model.next()).answer('Which city?');
  const calls = (await reply).filter(({ toolCallId }) => toolCallId !== undefined);
  expect(calls).toMatchObject([
    { type: 'tool-input-available', toolName: 'get_weather', providerExecuted: true },
    { type: 'tool-output-error' },
  ]);
});

it('POST /ui/chat lets the client run a call that needs approval once it is approved', async () => {
  const asking = readEvents(chat('secret', 'read_secret'));
  (await test.model.next()).call({ name: 'read_secret', input: { city: 'Bern' } });
  const [{ messageId }, ...asked] = await asking;
  const [call, request] = asked.filter(({ toolCallId }) => toolCallId !== undefined);
  expect(call).toMatchObject({ type: 'tool-input-available', providerExecuted: true });
  expect(request).toMatchObject({ type: 'tool-approval-request' });
  await approveAll();
  const { toolCallId, toolName, input } = call;
  const shown = { type: 'dynamic-tool', toolName, toolCallId, input, state: 'approval-requested' };
  const again = chat('secret', 'read_secret', { id: messageId, role: 'assistant', parts: [shown] });
  const calls = (await readEvents(again)).filter((event) => event.toolCallId !== undefined);
  expect(calls).toEqual([{ type: 'tool-input-available', toolName, toolCallId, input }]);
});
