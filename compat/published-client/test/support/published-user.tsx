import { OraclesProvider } from '@ixo/oracles-client-sdk';
import { QueryClient } from '@tanstack/react-query';
import type { PropsWithChildren } from 'react';
import { TestUser } from '../../../../packages/host/test/support/user.js';

const TTL_SECONDS = 600;

/** A user of the published client; the test's key replaces the wallet. */
export class PublishedUser extends TestUser {
  private readonly queryClient = new QueryClient();

  /** The provider of the user's page. */
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
