import { randomUUID } from 'node:crypto';
import { type Capability, generateSigner, mintAuthInvocation, mintDelegation } from '@sibyl/ucan';

const RENEWAL_MS = 200_000;

/** A user with a key, as a client of one host. */
export class TestUser {
  private bearer: string;
  private mintedAt = performance.now();

  constructor(
    readonly host: { readonly url: string; readonly did: string },
    readonly signer = generateSigner(),
  ) {
    this.bearer = this.mint();
  }

  /** The same user as a client of another host. */
  at(host: TestUser['host']): TestUser {
    return new TestUser(host, this.signer);
  }

  get did(): string {
    return this.signer.did;
  }

  /** With a new token before the last one expires, as clients do. */
  get headers(): Record<string, string> {
    if (performance.now() - this.mintedAt > RENEWAL_MS) {
      this.bearer = this.mint();
      this.mintedAt = performance.now();
    }
    return { authorization: `Bearer ${this.bearer}`, 'x-auth-type': 'ucan' };
  }

  /** A fresh auth invocation. */
  mint(ttlSeconds = 300): string {
    return expectToken(
      mintAuthInvocation({ signer: this.signer, audience: this.host.did, ttlSeconds }),
    );
  }

  /** A delegation to the host's oracle. */
  delegate(options: Partial<DelegationChoice> = {}): string {
    const { audience = this.host.did, ttlSeconds = 3600 } = options;
    const capabilities = options.capabilities ?? [{ can: 'store/*', with: this.did }];
    const expiration = ttlSeconds === null ? null : Math.floor(Date.now() / 1000) + ttlSeconds;
    const fields = { signer: this.signer, audience, capabilities, expiration };
    return expectToken(mintDelegation({ ...fields, nonce: randomUUID() }));
  }

  async request(
    method: string,
    path: string,
    { body, headers = {} }: { body?: unknown; headers?: Record<string, string> } = {},
  ): Promise<Answer> {
    const response = await fetch(this.host.url + path, {
      method,
      headers: { ...this.headers, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: response.status, headers: response.headers, body: await response.json() };
  }
}

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly body: any;
}

interface DelegationChoice {
  readonly audience: string;
  /** Null for a delegation that never expires. */
  readonly ttlSeconds: number | null;
  readonly capabilities: readonly Capability[];
}

function expectToken(result: { ok?: { token: string }; error?: { detail: string } }): string {
  if (!result.ok) throw new Error(result.error?.detail);
  return result.ok.token;
}
