import { createContext, createElement, type ReactElement, type ReactNode, useContext } from 'react';
import type { OracleClient } from '../oracle-client.js';

const OracleContext = createContext<OracleClient | undefined>(undefined);

export interface OracleProviderProps {
  readonly client: OracleClient;
  readonly children?: ReactNode;
}

/** Gives the hooks below it their client. */
export function OracleProvider({ client, children }: OracleProviderProps): ReactElement {
  return createElement(OracleContext, { value: client }, children);
}

/** The client of the surrounding provider. */
export function useOracle(): OracleClient {
  const client = useContext(OracleContext);
  if (!client) throw new Error('This hook needs an OracleProvider above it');
  return client;
}
