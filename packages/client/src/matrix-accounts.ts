import type { MatrixLink, MatrixLinkList } from '@sibyl/protocol';
import { delegateRuns } from './delegations.js';
import type { HttpClient, RequestOptions } from './http/http-client.js';
import type { OracleSigner } from './signers/signer.js';

const PATH = '/matrix/links';

/** Matrix accounts whose messages the oracle answers as the user. */
export interface MatrixAccounts extends ReturnType<typeof createMatrixAccounts> {}

export const createMatrixAccounts = (http: HttpClient, signer: OracleSigner) => ({
  async list(options?: RequestOptions): Promise<readonly MatrixLink[]> {
    return (await http.get<MatrixLinkList>(PATH, options)).links;
  },
  /**
   * Signs a delegation for an account, such as `@alice:example.org`. The account is linked once it has sent `code` to the oracle.
   * `expiration` is in Unix seconds; it defaults to 90 days from now.
   */
  async link(
    userId: string,
    { expiration }: { readonly expiration?: number } = {},
  ): Promise<MatrixLink> {
    const purpose = `matrix/${encodeURIComponent(userId)}`;
    const delegation = await delegateRuns(http, signer, { purpose, expiration });
    return http.requestJson({ method: 'POST', path: PATH, body: { userId, delegation } });
  },
  async unlink(userId: string): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: `${PATH}/${encodeURIComponent(userId)}` });
  },
});
