import { createSigner, type OracleClient, type OracleSigner } from '@sibyl/client';
import { OracleProvider } from '@sibyl/client/react';
import { generateSigner } from '@sibyl/ucan';
import { act, cleanup, screen, waitFor } from '@testing-library/react';
import { type ReactNode, StrictMode } from 'react';
import { afterEach, expect } from 'vitest';
import {
  type ControlledHost,
  useControlledHost,
} from '../../../host/test/support/controlled-host.js';
import type { TestHostOptions } from '../../../host/test/support/host.js';
import { createTestClient } from './client.js';

/** A busy machine may be slow. */
export const POLL_OPTIONS = { timeout: 10_000 };

/** A client and its provider for hooks. */
export interface ReactPage {
  readonly client: OracleClient;
  readonly wrapper: (props: { children: ReactNode }) => ReactNode;
}

/** Pages connected to a server, for one test file. */
export interface ReactPages extends Pick<ControlledHost, 'model'> {
  /** Opens a page of the default user, or of another. */
  open(signer?: OracleSigner): ReactPage;
}

export function useReactPages(options: TestHostOptions = {}): ReactPages {
  const server = useControlledHost(options);
  const sameUser = createUser();
  const clients: OracleClient[] = [];
  afterEach(() => {
    cleanup();
    for (const client of clients.splice(0)) client.close();
  });
  return {
    get model() {
      return server.model;
    },
    open(signer = sameUser) {
      const client = createTestClient(server.host, { signer });
      clients.push(client);
      const wrapper: ReactPage['wrapper'] = ({ children }) => (
        <StrictMode>
          <OracleProvider client={client}>{children}</OracleProvider>
        </StrictMode>
      );
      return { client, wrapper };
    },
  };
}

export const createUser = (): OracleSigner => createSigner(generateSigner());

/** Waits until the page's `<output>` shows this status. */
export const waitForStatus = (status: string): Promise<void> =>
  waitFor(() => expect(screen.getByRole('status').textContent).toBe(status), POLL_OPTIONS);

export const click = (name: string): Promise<void> =>
  act(async () => screen.getByRole('button', { name }).click());
