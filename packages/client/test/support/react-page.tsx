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
import { createTestClient } from './client.js';

/** How long a busy machine may take to show something. */
export const POLL_OPTIONS = { timeout: 10_000 };

/** A client, and what gives it to the hooks of a page. */
export interface ReactPage {
  readonly client: OracleClient;
  readonly wrapper: (props: { children: ReactNode }) => ReactNode;
}

/** Pages that talk to a host, during the surrounding file. */
export interface ReactPages extends Pick<ControlledHost, 'model'> {
  /** A page of the same user every time, or of another. */
  open(signer?: OracleSigner): ReactPage;
}

export function useReactPages(): ReactPages {
  const parts = useControlledHost();
  const sameUser = createUser();
  const clients: OracleClient[] = [];
  afterEach(() => {
    cleanup();
    for (const client of clients.splice(0)) client.close();
  });
  return {
    get model() {
      return parts.model;
    },
    open(signer = sameUser) {
      const client = createTestClient(parts.host, { signer });
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

/** Waits until the page's `<output>` says this. */
export const waitForStatus = (status: string): Promise<void> =>
  waitFor(() => expect(screen.getByRole('status').textContent).toBe(status), POLL_OPTIONS);

export const click = (name: string): Promise<void> =>
  act(async () => screen.getByRole('button', { name }).click());
