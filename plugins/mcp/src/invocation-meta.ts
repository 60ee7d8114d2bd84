import { AsyncLocalStorage } from 'node:async_hooks';
import type { JSONRPCMessage, MCPTransport } from '@ai-sdk/mcp';

/** Where a server finds the user's invocation: in the call's `_meta`, on every transport alike. */
export const INVOCATION_META = 'ucan/invocation';

/** The invocation that goes with the call under way; the client has no parameter for it. */
const invocation = new AsyncLocalStorage<string>();

export const withInvocation = <T>(token: string | undefined, call: () => T): T =>
  token === undefined ? call() : invocation.run(token, call);

/** Adds the invocation to the body of the call it belongs to. */
export function bodyWithInvocation(body: unknown): unknown {
  const token = invocation.getStore();
  if (token === undefined || typeof body !== 'string') return body;
  return JSON.stringify(withMeta(JSON.parse(body), token));
}

/** Adds the invocation to the calls that a transport sends. */
export function carryInvocations<T extends MCPTransport>(transport: T): T {
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    const token = invocation.getStore();
    return send(token === undefined ? message : withMeta(message, token), options);
  };
  return transport;
}

function withMeta(message: JSONRPCMessage, token: string): JSONRPCMessage {
  if (!('method' in message) || message.method !== 'tools/call') return message;
  const meta = { ...message.params?._meta, [INVOCATION_META]: token };
  return { ...message, params: { ...message.params, _meta: meta } };
}
