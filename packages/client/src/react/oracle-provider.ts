// Apart from `useChat`, so that pages can load the code of conversations later.
import { createContext, createElement, type ReactElement, type ReactNode, useContext } from 'react';
import type { OracleClient } from '../oracle-client.js';

const OracleContext = createContext<OracleClient | undefined>(undefined);

export interface OracleProviderProps {
  readonly client: OracleClient;
  readonly children?: ReactNode;
}

/** Provides the client to the hooks inside it. */
export function OracleProvider({ client, children }: OracleProviderProps): ReactElement {
  return createElement(OracleContext, { value: client }, children);
}

/** Returns the client of the surrounding OracleProvider. */
export function useOracle(): OracleClient {
  const client = useContext(OracleContext);
  if (!client) throw new Error('This hook must be used inside an OracleProvider');
  return client;
}
