import { z } from 'zod';

/** A node's address, and what the operator says about it. */
export interface UpstreamAddress {
  readonly url: URL;
  /** The first height it keeps, if the operator says. */
  readonly from: number | undefined;
}

const PROTOCOLS = ['grpc:', 'grpcs:', 'rpc+http:', 'rpc+https:'];

/** Reads one entry of GATEWAY_UPSTREAMS. */
export const UpstreamUrl = z.string().transform((text, context): UpstreamAddress => {
  const fail = (message: string) => {
    // Never the entry itself: it may hold a password.
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  };
  if (!URL.canParse(text)) return fail('must be URLs such as grpc://127.0.0.1:9090');
  const url = new URL(text);
  if (!PROTOCOLS.includes(url.protocol)) return fail(`must start with one of ${names()}`);
  if (!url.hostname) return fail('must name a host');
  if (url.protocol.startsWith('grpc') && !url.port) return fail(`needs the port of ${url.host}`);
  const from = url.searchParams.get('from');
  if (from !== null && !/^[1-9]\d{0,14}$/.test(from)) return fail('has a ?from= that is no height');
  url.searchParams.delete('from');
  return { url, from: from === null ? undefined : Number(from) };
});

const names = () => PROTOCOLS.map((protocol) => `${protocol}//`).join(', ');
