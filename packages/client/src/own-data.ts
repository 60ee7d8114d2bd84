import type { Erased, Fact, FactPage, ImportJob, Sharing } from '@sibyl/protocol';
import { ERASE_ABILITY } from '@sibyl/protocol/decisions';
import { sign } from './approvals.js';
import type { HttpClient, PageOptions, RequestOptions } from './http/http-client.js';
import type { OracleSigner } from './signers/signer.js';

/** How long a signed confirmation can be sent. */
const CONFIRMATION_SECONDS = 120;

/** Everything that an oracle stores about the user. */
export interface OwnData extends ReturnType<typeof createOwnData> {}

export const createOwnData = (http: HttpClient, signer: OracleSigner) => ({
  /** A zip archive, to be read as it arrives: `body` of the response. */
  export({ signal }: RequestOptions = {}): Promise<Response> {
    return http.request({ path: '/me/export', signal });
  },
  /** Imports an archive of `export`, or an export of ChatGPT, in the background. */
  import(archive: Blob, { signal }: RequestOptions = {}): Promise<ImportJob> {
    return http.requestJson({
      method: 'POST',
      path: '/me/import',
      content: archive,
      headers: { 'content-type': 'application/octet-stream' },
      signal,
    });
  },
  /** The progress of an import. */
  findImport(id: string, options?: RequestOptions): Promise<ImportJob> {
    return http.get(`/me/import/${encodeURIComponent(id)}`, options);
  },
  /** Signs a confirmation and erases everything; it cannot be undone. */
  async erase(): Promise<Erased> {
    const statement = { can: ERASE_ABILITY, nb: undefined, seconds: CONFIRMATION_SECONDS };
    const invocation = await sign(http, signer, statement);
    return http.requestJson({ method: 'DELETE', path: '/me', body: { invocation } });
  },
  /** What the user lets operators see besides figures. */
  sharing(options?: RequestOptions): Promise<Sharing> {
    return http.get('/me/sharing', options);
  },
  setSharing(sharing: Sharing): Promise<Sharing> {
    return http.requestJson({ method: 'PUT', path: '/me/sharing', body: sharing });
  },
});

const toFactPath = (id: string) => `/memory/${encodeURIComponent(id)}`;

/** The facts that the oracle remembers about the user. */
export interface Memory extends ReturnType<typeof createMemory> {}

export const createMemory = (http: HttpClient) => ({
  /** Newest first; with `q`, the best matches first. */
  list(page?: PageOptions & { readonly q?: string }): Promise<FactPage> {
    return http.get('/memory', page);
  },
  add(text: string): Promise<Fact> {
    return http.requestJson({ method: 'POST', path: '/memory', body: { text } });
  },
  change(id: string, text: string): Promise<Fact> {
    return http.requestJson({ method: 'PATCH', path: toFactPath(id), body: { text } });
  },
  async forget(id: string): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: toFactPath(id) });
  },
});
