import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import * as Client from '@ucanto/client';
import { Delegation } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import * as Server from '@ucanto/server';
import { CAR, HTTP } from '@ucanto/transport';

/** An external service: a ucanto server over HTTP with its own did:web. */
export interface UcantoService {
  readonly url: string;
  readonly did: string;
  /** The issuers and resources of all calls, in order. */
  readonly calls: readonly { readonly issuer: string; readonly with: string }[];
  /** Sends a base64 CAR as an invocation and returns the response. */
  execute(token: string): Promise<{ ok?: unknown; error?: unknown }>;
  close(): void;
}

const StoreAdd = Server.capability({
  can: 'store/add',
  with: Server.URI.match({ protocol: 'did:' }),
});

/** Starts the service; `documentId` replaces the DID in its document. */
export async function startUcantoService({ documentId }: { documentId?: string } = {}) {
  const key = await ed25519.generate();
  const http = createServer();
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  const { port } = http.address() as AddressInfo;
  const did = `did:web:127.0.0.1%3A${port}` as const;
  const id = key.withDID(did);
  const calls: { issuer: string; with: string }[] = [];
  const server = Server.create({
    id,
    codec: CAR.inbound,
    service: {
      store: {
        add: Server.provide(StoreAdd, ({ capability, invocation }) => {
          calls.push({ issuer: invocation.issuer.did(), with: capability.with });
          return { ok: { stored: capability.with } };
        }),
      },
    },
    validateAuthorization: () => ({ ok: {} }),
  });
  http.on('request', async (request, response) => {
    if (request.url === '/.well-known/did.json') {
      return void response.end(JSON.stringify(buildDocument(documentId ?? did, key.did())));
    }
    const { headers, body } = await server.request({
      headers: request.headers as Record<string, string>,
      body: await buffer(request),
    });
    response.writeHead(200, headers).end(body);
  });
  const url = `http://127.0.0.1:${port}`;
  const connection = Client.connect({
    id,
    codec: CAR.outbound,
    channel: HTTP.open<Record<string, never>>({ url: new URL(url) }),
  });
  return {
    url,
    did,
    calls,
    execute: async (token: string) => {
      const { ok, error } = await Delegation.extract(Buffer.from(token, 'base64'));
      if (!ok) throw error;
      const [receipt] = await connection.execute(ok as never);
      return (receipt as { out: { ok?: unknown; error?: unknown } }).out;
    },
    close: () => http.close(),
  } satisfies UcantoService;
}

function buildDocument(id: string, keyDid: string) {
  const method = {
    id: `${id}#key-1`,
    type: 'Multikey',
    controller: id,
    publicKeyMultibase: keyDid.slice('did:key:'.length),
  };
  return { id, verificationMethod: [method], assertionMethod: [method.id] };
}
