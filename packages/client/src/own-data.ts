import type { Erased, Fact, FactPage, ImportJob, Usage } from '@sibyl/protocol';
import { ERASE_ABILITY } from '@sibyl/protocol/decisions';
import { sign } from './approvals.js';
import type { HttpClient } from './http/http-client.js';
import type { RequestOptions } from './oracle-client.js';
import type { OracleSigner } from './signers/signer.js';

/** Everything that an oracle stores about the user. */
export interface OwnData {
  /** A zip archive, to be read as it arrives: `body` of the response. */
  export(options?: RequestOptions): Promise<Response>;
  /** Imports an archive of `export`, or an export of ChatGPT, in the background. */
  import(archive: Blob, options?: RequestOptions): Promise<ImportJob>;
  /** The progress of an import. */
  findImport(id: string, options?: RequestOptions): Promise<ImportJob>;
  /** Signs a confirmation and erases everything; there is no way back. */
  erase(): Promise<Erased>;
}

/** The facts that the oracle remembers about the user. */
export interface Memory {
  /** Newest first; with `q`, the best matches first. */
  list(
    page?: RequestOptions & {
      readonly q?: string;
      readonly limit?: number;
      readonly offset?: number;
    },
  ): Promise<FactPage>;
  add(text: string): Promise<Fact>;
  change(id: string, text: string): Promise<Fact>;
  forget(id: string): Promise<void>;
}

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
