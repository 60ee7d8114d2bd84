import type { Usage } from '@sibyl/protocol';
import { ERASE_ABILITY } from '@sibyl/protocol/decisions';
import { sign } from './approvals.js';
import type { HttpClient } from './http/http-client.js';
import type { Memory, OwnData, RequestOptions } from './oracle-client.js';
import type { OracleSigner } from './signers/signer.js';

/** How long a signed confirmation can be sent. */
const CONFIRMATION_SECONDS = 120;

export const createOwnData = (http: HttpClient, signer: OracleSigner): OwnData => ({
  export: ({ signal } = {}) => http.request({ path: '/me/export', signal }),
  import: (content, { signal } = {}) =>
    http.requestJson({
      method: 'POST',
      path: '/me/import',
      content,
      headers: { 'content-type': 'application/octet-stream' },
      signal,
    }),
  findImport: (id, { signal } = {}) =>
    http.requestJson({ path: `/me/import/${encodeURIComponent(id)}`, signal }),
  sharing: ({ signal } = {}) => http.requestJson({ path: '/me/sharing', signal }),
  setSharing: (body) => http.requestJson({ method: 'PUT', path: '/me/sharing', body }),
  erase: async () => {
    const statement = { can: ERASE_ABILITY, nb: undefined, seconds: CONFIRMATION_SECONDS };
    const invocation = await sign(http, signer, statement);
    return http.requestJson({ method: 'DELETE', path: '/me', body: { invocation } });
  },
});

const toFactPath = (id: string) => `/memory/${encodeURIComponent(id)}`;

export const createMemory = (http: HttpClient): Memory => ({
  list: ({ signal, ...query } = {}) => http.requestJson({ path: '/memory', query, signal }),
  add: (text) => http.requestJson({ method: 'POST', path: '/memory', body: { text } }),
  change: (id, text) => http.requestJson({ method: 'PATCH', path: toFactPath(id), body: { text } }),
  forget: async (id) => {
    await http.requestJson({ method: 'DELETE', path: toFactPath(id) });
  },
});

export const readUsage = (
  http: HttpClient,
  { days, signal }: RequestOptions & { readonly days?: number } = {},
): Promise<Usage> => http.requestJson({ path: '/usage', query: { days }, signal });
