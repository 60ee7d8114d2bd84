import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from '@ucanto/client';
import { Delegation, Schema } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import { capability, create, provide } from '@ucanto/server';
import { CAR, HTTP } from '@ucanto/transport';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type MintedToken, systemClock } from '../src/codec/ucan.js';
import {
  buildServiceRequest,
  type InvocationRequest,
  mintDelegation,
  mintInvocation,
} from '../src/mint/mint.js';
import { delegateWithUcanto, toArchive } from './support/ucanto-tokens.js';
import { alice, bob, oracle, unwrap, verifierWith } from './support/verifier.js';

const addFile = capability({
  can: 'store/add',
  with: Schema.did(),
  nb: Schema.struct({ name: Schema.string() }),
});

/** A ucanto service with one ability on a real HTTP port. */
async function startService() {
  const id = await ed25519.generate();
  const service = create({
    id,
    codec: CAR.inbound,
    service: {
      store: {
        add: provide(addFile, ({ capability: { nb, with: owner } }) => ({
          ok: { name: nb.name, owner },
        })),
      },
    },
    validateAuthorization: () => ({ ok: {} }),
  });
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const reply = await service.request({ headers: request.headers as never, body: body as never });
    response.writeHead(reply.status ?? 200, reply.headers).end(reply.body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { id, server, url: new URL(`http://127.0.0.1:${port}/`) };
}

let running: Awaited<ReturnType<typeof startService>>;
beforeAll(async () => {
  running = await startService();
});
afterAll(() => new Promise((resolve) => (running.server as Server).close(resolve)));

const verifier = verifierWith({ clock: systemClock });
const inAnHour = systemClock() + 3600;

/** alice lets the oracle store files of hers. */
async function delegationOfAlice() {
  const minted = mintDelegation({
    signer: alice,
    audience: oracle.did,
    capabilities: [{ can: 'store/*', with: alice.did }],
    expiration: inAnHour,
  });
  return unwrap(await verifier.verifyDelegation(unwrap(minted).token));
}

const addAs = async (more: Partial<InvocationRequest> = {}) =>
  mintInvocation({
    signer: oracle,
    delegation: await delegationOfAlice(),
    audience: running.id.did(),
    can: 'store/add',
    with: alice.did,
    nb: { name: 'a.txt' },
    ...more,
  });

/** Sends with our own message and reads the receipt with ucanto. */
async function send(minted: MintedToken) {
  const { method, headers, body } = unwrap(buildServiceRequest(minted));
  const response = await fetch(running.url, { method, headers, body: Buffer.from(body) });
  const reply = new Uint8Array(await response.arrayBuffer());
  const message = await CAR.response.decode({ headers: {}, body: reply } as never);
  return [...message.receipts.values()][0]?.out as { ok?: unknown; error?: Error };
}

/** Sends the same token through ucanto's own client. */
async function sendWithUcanto(minted: MintedToken) {
  const archive = await Delegation.extract(Buffer.from(minted.token, 'base64'));
  const connection = connect({
    id: running.id,
    codec: CAR.outbound,
    channel: HTTP.open({ url: running.url }) as never,
  });
  const receipts = await connection.execute(unwrap(archive as never) as never);
  return (receipts as readonly { out: { ok?: unknown; error?: Error } }[])[0]?.out ?? {};
}

describe.each([
  ['our message', send],
  ["ucanto's client", sendWithUcanto],
])('a ucanto server, asked with %s', (_, ask) => {
  test('accepts what was minted from a delegation', async () => {
    const out = await ask(unwrap(await addAs()));
    expect(out.error).toBeUndefined();
    expect(out.ok).toEqual({ name: 'a.txt', owner: alice.did });
  });

  test('accepts what was minted from a chain', async () => {
    const toBob = await delegateWithUcanto(alice, {
      audience: bob.did,
      capabilities: [{ can: 'store/*', with: alice.did }],
      expiration: inAnHour,
    });
    const minted = mintDelegation({
      signer: bob,
      audience: oracle.did,
      capabilities: [{ can: 'store/add', with: alice.did }],
      expiration: inAnHour,
      proofs: [await toArchive(toBob)],
    });
    const delegation = unwrap(await verifier.verifyDelegation(unwrap(minted).token));
    const out = await ask(unwrap(await addAs({ delegation })));
    expect(out.error).toBeUndefined();
  });

  test('refuses what the delegation does not cover', async () => {
    const granted = await delegationOfAlice();
    const capabilities = [{ can: 'store/add', with: bob.did }];
    const forged = { ...granted, capabilities };
    const out = await ask(unwrap(await addAs({ delegation: forged, with: bob.did })));
    expect(out.error?.message).toMatch(/not authorized/i);
  });

  test('refuses what has expired', async () => {
    const expired = await addAs({ clock: () => systemClock() - 600 });
    const out = await ask(unwrap(expired));
    expect(out.error?.message).toMatch(/expired/i);
  });

  test('refuses what is meant for another service', async () => {
    const out = await ask(unwrap(await addAs({ audience: bob.did })));
    expect(out.error).toBeDefined();
  });
});
