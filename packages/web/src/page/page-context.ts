import type { BrowserSigner, MessageToSend, OracleCard } from '@sibyl/client';
import { createContext, use } from 'react';
import type { Outbox } from '../chat/outbox.js';

/** Values that all parts of the page need. */
export interface PageValues {
  readonly signer: BrowserSigner;
  readonly card: OracleCard;
  readonly settings: PageSettings;
  readonly outbox: Outbox;
}

/** Settings from the server that only the page needs. */
export interface PageSettings {
  /** The homeserver for uploads with Matrix. */
  readonly matrixBaseUrl?: string;
}

export const PageContext = createContext<PageValues | undefined>(undefined);

export function usePage(): PageValues {
  const values = use(PageContext);
  if (!values) throw new Error('usePage must be used inside PageContext');
  return values;
}

/** Sends a message to the current conversation. */
export const SendContext = createContext<((message: MessageToSend) => void) | undefined>(undefined);
