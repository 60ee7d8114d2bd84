import { OraclesProvider } from '@ixo/oracles-client-sdk';
import { QueryClient } from '@tanstack/react-query';
import type { PropsWithChildren } from 'react';
import { TestUser } from '../../../../packages/host/test/support/user.js';

const TTL_SECONDS = 600;

/** Somebody who uses the published client: their tokens come from a wallet, here a key of the test. */
export class PublishedUser extends TestUser {
  private readonly queryClient = new QueryClient();

  /** What the page of such a user is wrapped in. */
  readonly Provider = ({ children }: PropsWithChildren) => (
    <OraclesProvider
      initialWallet={{
        address: 'ixo1test',
        did: this.did,
        matrix: { accessToken: '', homeServer: '' },
      }}
      transactSignX={async () => undefined}
      createDelegation={async () => this.signed(this.delegate({ ttlSeconds: TTL_SECONDS }))}
      createInvocation={async () => this.signed(this.mint(TTL_SECONDS))}
      queryClient={this.queryClient}
    >
      {children}
    </OraclesProvider>
  );

  private signed(serialized: string) {
    return { serialized, expiresAt: Date.now() + TTL_SECONDS * 1000 };
  }
}
