import http, { type IncomingMessage, type RequestOptions } from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import type { OutgoingRequest } from './outgoing-request.js';

export interface Route {
  /** Checked addresses; the host name is never looked up again. */
  readonly addresses: readonly string[];
  readonly ca: string | undefined;
  readonly signal: AbortSignal;
}

/** Sends one request to a checked address; Host and SNI stay the name in the URL. */
export function sendRequest(request: OutgoingRequest, route: Route): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const transport = request.url.protocol === 'https:' ? https : http;
    const outgoing = transport.request(request.url, requestOptions(request, route));
    outgoing.on('response', resolve);
    outgoing.on('error', reject);
    // Should neither come, nothing else would end the wait.
    outgoing.on('close', () => reject(new Error('closed without a response')));
    outgoing.end(request.body);
  });
}

function requestOptions(request: OutgoingRequest, route: Route): https.RequestOptions {
  const headers: Record<string, string> = { ...Object.fromEntries(request.headers) };
  headers['accept-encoding'] = 'identity';
  // Node frames the body of a DELETE only when told its length.
  if (request.body) headers['content-length'] = String(request.body.length);
  const options: RequestOptions = {
    method: request.method,
    headers,
    // No pooled socket: it could lead to an address that another rule had checked.
    agent: false,
    lookup: pinnedLookup(route.addresses),
    signal: route.signal,
  };
  return route.ca === undefined ? options : { ...options, ca: route.ca };
}

function pinnedLookup(addresses: readonly string[]): LookupFunction {
  const answers = addresses.map((address) => ({ address, family: isIP(address) }));
  return (_hostname, options, callback) => {
    if (options.all) return callback(null, answers);
    const [first] = answers;
    if (first) callback(null, first.address, first.family);
    else callback(new Error('no checked address'), '');
  };
}
